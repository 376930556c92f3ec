"use strict";
// Checks a bundle in the browser: every byte of the zip, every sha256, and the claims about the
// winner, recomputed from the evaluations in its journal. Nothing leaves this page.

// ---------------------------------------------------------------------- numbers as hpo writes them

const roundedDigits = (exact, digits) => {  // of a decimal text, half to even
  const [whole, rest = ""] = exact.split(".");
  const kept = rest.slice(0, digits);
  const cut = rest.slice(digits);
  let scaled = BigInt(whole + kept.padEnd(digits, "0"));
  const half = `5${"0".repeat(Math.max(0, cut.length - 1))}`;
  if (cut > half || (cut === half && scaled % 2n === 1n)) scaled += 1n;
  const text = String(scaled).padStart(digits + 1, "0");
  return digits ? `${text.slice(0, -digits)}.${text.slice(-digits)}` : text;
};
const fixed = (value, digits) => {
  const text = roundedDigits(Math.abs(value).toFixed(100), digits);
  return (value < 0 && Number(text) !== 0 ? "-" : "") + text;
};
const significant = (value, digits) => {
  if (value === 0) return "0";
  const [mantissa, exponent] = Math.abs(value).toExponential(100).split("e");
  let rounded = roundedDigits(mantissa, digits - 1);
  let power = Number(exponent);
  if (rounded.startsWith("10")) {
    rounded = rounded.replace("10", "1");
    power += 1;
  }
  const bare = (text) => (text.includes(".") ? text.replace(/\.?0*$/, "") : text);
  const sign = value < 0 ? "-" : "";
  if (power < -4 || power >= digits) {
    const shown = String(Math.abs(power)).padStart(2, "0");
    return `${sign}${bare(rounded)}e${power < 0 ? "-" : "+"}${shown}`;
  }
  const all = rounded.replace(".", "");
  if (power < 0) return sign + bare(`0.${"0".repeat(-power - 1)}${all}`);
  return sign + bare(`${all.slice(0, power + 1).padEnd(power + 1, "0")}.${all.slice(power + 1)}`);
};
const number = (value) => {
  if (value === null) return "-";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  return Math.abs(value) >= 1000 ? fixed(value, 0) : significant(value, 4);
};
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const thousands = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ",");

// ---------------------------------------------------------------------- JSON as Python writes it

const parseJson = (text) => {  // with NaN and Infinity; a key that occurs twice is an error
  const tokens = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|(-?(?:Infinity|NaN|[0-9][0-9.eE+-]*)|NaN|true|false|null))/y;
  const next = () => {
    const found = tokens.exec(text);
    if (!found) throw new Error("not JSON");
    return found;
  };
  const WORDS = { true: true, false: false, null: null, NaN, Infinity, "-Infinity": -Infinity };
  const valueOf = ([, mark, quoted, word]) => {
    if (quoted !== undefined) return JSON.parse(quoted);
    if (word !== undefined) return word in WORDS ? WORDS[word] : Number(word);
    if (mark !== "{" && mark !== "[") throw new Error("not JSON");
    const isMap = mark === "{";
    const found = isMap ? {} : [];
    for (let first = true; ; first = false) {
      let token = next();
      if (first && token[1] === (isMap ? "}" : "]")) return found;
      if (!first) {
        if (token[1] === (isMap ? "}" : "]")) return found;
        if (token[1] !== ",") throw new Error("not JSON");
        token = next();
      }
      if (!isMap) {
        found.push(valueOf(token));
        continue;
      }
      const key = valueOf(token);
      if (typeof key !== "string" || Object.hasOwn(found, key)) {
        throw new Error(`the key ${key} occurs twice`);
      }
      if (next()[1] !== ":") throw new Error("not JSON");
      Object.defineProperty(found, key,
        { value: valueOf(next()), enumerable: true, writable: true, configurable: true });
    }
  };
  const found = valueOf(next());
  if (text.slice(tokens.lastIndex).trim()) throw new Error("not JSON");
  return found;
};

// ---------------------------------------------------------------------- the zip, byte by byte

const CRC = (() => {
  const table = new Uint32Array(256);
  for (let at = 0; at < 256; at += 1) {
    let value = at;
    for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
    table[at] = value >>> 0;
  }
  return (bytes) => {
    let value = 0xffffffff;
    for (const byte of bytes) value = table[(value ^ byte) & 0xff] ^ (value >>> 8);
    return (value ^ 0xffffffff) >>> 0;
  };
})();
const ascii = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
const record = (...fields) => {  // [bytes of a little-endian number, its value], or text
  const parts = [];
  for (const field of fields) {
    if (typeof field === "string") {
      parts.push(...ascii(field));
      continue;
    }
    for (let at = 0; at < field[0]; at += 1) parts.push(Math.floor(field[1] / 256 ** at) & 0xff);
  }
  return Uint8Array.from(parts);
};
const DAY = 0x21;
const MODE = 0o100644 * 65536;
const localHeader = ([name, size, crc]) => record("PK\x03\x04", [2, 20], [2, 0], [2, 0], [2, 0],
  [2, DAY], [4, crc], [4, size], [4, size], [2, name.length], [2, 0], name);
const directory = (entries) => {
  const parts = [];
  let at = 0;
  for (const [name, size, crc] of entries) {
    const fields = [[2, 0x0314], [2, 20], [2, 0], [2, 0], [2, 0], [2, DAY], [4, crc], [4, size],
      [4, size], [2, name.length], [2, 0], [2, 0], [2, 0], [2, 0], [4, MODE], [4, at]];
    parts.push([name, record("PK\x01\x02", ...fields, name)]);
    at += localHeader([name, size, crc]).length + size;
  }
  const length = parts.reduce((sum, [, bytes]) => sum + bytes.length, 0);
  const count = entries.length;
  parts.push(["the end", record("PK\x05\x06", [2, 0], [2, 0], [2, count], [2, count],
    [4, length], [4, at], [2, 0])]);
  return parts;
};
const matches = (content, at, part) =>
  at + part.length <= content.length && part.every((byte, place) => content[at + place] === byte);
const isPlain = (name) => /^[ -~]+$/.test(name) && !name.startsWith("/") && !name.includes("\\")
  && name.split("/").every((part) => part !== "" && part !== "." && part !== "..");

const unpack = (content) => {
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  const members = new Map();
  const entries = [];
  let at = 0;
  while (matches(content, at, ascii("PK\x03\x04"))) {
    if (at + 30 > content.length) throw new Error("it ends within a header");
    const [crc, size, length] = [view.getUint32(at + 14, true), view.getUint32(at + 22, true),
      view.getUint16(at + 26, true)];
    const name = String.fromCharCode(...content.subarray(at + 30, at + 30 + length));
    if (!isPlain(name)) throw new Error(`it is damaged: a member is named ${JSON.stringify(name)}`);
    const low = name.toLowerCase();
    for (const other of [...members.keys()].map((one) => one.toLowerCase())) {
      const taken = low === other || low.startsWith(`${other}/`) || other.startsWith(`${low}/`);
      if (taken) throw new Error(`two members are named ${name}, or one is inside the other`);
    }
    const head = localHeader([name, size, crc]);
    if (!matches(content, at, head)) {
      const again = "it was repacked by another program, or is damaged";
      throw new Error(entries.length ? `${again}: the header of ${name} changed` : again);
    }
    at += head.length;
    const data = content.subarray(at, at + size);
    if (data.length < size || CRC(data) !== crc) {
      throw new Error(`it is damaged: ${name} changed or is truncated`);
    }
    entries.push([name, size, crc]);
    members.set(name, data);
    at += size;
  }
  for (const [name, part] of directory(entries)) {
    if (!matches(content, at, part)) {
      throw new Error(`it is damaged: ${name} in its list of members changed`);
    }
    at += part.length;
  }
  if (at !== content.length) throw new Error("it is damaged: it has data after its end");
  return members;
};

const textOf = (bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);
const sha256 = async (bytes) => {
  const digest = new Uint8Array(await globalThis.crypto.subtle.digest("SHA-256", bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
};

const MOST_BYTES = 2 ** 30;
const inflated = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
const packedAgain = async (content) => {  // which members changed, if another program packed it
  const view = new DataView(content.buffer, content.byteOffset, content.byteLength);
  let end = content.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) return "";
  const sums = new Map();
  let [at, foreign, whole, manifest] = [view.getUint32(end + 16, true), 0, 0, null];
  const count = view.getUint16(end + 10, true);
  for (let entry = 0; entry < count; entry += 1) {
    if (view.getUint32(at, true) !== 0x02014b50) return "";
    const [method, time, day] = [10, 12, 14].map((place) => view.getUint16(at + place, true));
    const [packed, start] = [20, 42].map((place) => view.getUint32(at + place, true));
    const lengths = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    whole += view.getUint32(at + 24, true);
    if (whole > MOST_BYTES) return "";
    foreign += method !== 0 || time !== 0 || day !== DAY || view.getUint32(at + 38, true) !== MODE;
    const name = String.fromCharCode(...content.subarray(at + 46, at + 46 + lengths[0]));
    at += 46 + lengths[0] + lengths[1] + lengths[2];
    if (name.endsWith("/")) continue;
    const begin = start + 30 + view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    let data = content.subarray(begin, begin + packed);
    if (method === 8) data = await inflated(data);
    if (name === "bundle.json") manifest = parseJson(textOf(data));
    else sums.set(name, await sha256(data));
  }
  if (foreign < Math.min(2, count) || manifest === null) return "";
  const listed = Object.entries(manifest.members);
  const changed = listed.filter(([name, sum]) => sums.has(name) && sums.get(name) !== sum);
  const missing = listed.filter(([name]) => !sums.has(name));
  const added = [...sums].filter(([name]) => !Object.hasOwn(manifest.members, name));
  for (const [found, verb] of [[changed, "changed"], [missing, "missing"], [added, "added"]]) {
    if (!found.length) continue;
    const more = found.length > 1 ? ` and ${found.length - 1} more` : "";
    const are = found.length > 1 ? "are " : "is ";
    const state = `${found[0][0]}${more} ${verb === "changed" ? "" : are}${verb}`;
    return `it was repacked by another program: ${state} since hpo wrote it`;
  }
  return "it was repacked by another program; its members are unchanged, but only the original "
    + "file can be verified";
};

const TOP = ["claims.json", "lock.json", "report.html", "verify.html", "study.yaml",
  "study.resolved.yaml", "journal.sqlite", "curves.parquet", "trials.parquet",
  "evaluations.parquet", "baselines.parquet", "numpy/forward.py", "numpy/policy.json"];
const NEEDED = ["claims.json", "lock.json", "study.yaml", "study.resolved.yaml", "journal.sqlite",
  "curves.parquet"];

const checkManifest = async (members) => {
  if (!members.has("bundle.json")) throw new Error("it is not a bundle: it has no bundle.json");
  const text = textOf(members.get("bundle.json"));
  const about = parseJson(text);
  if (about.format !== 3) throw new Error(`it has format ${about.format}; this page reads 3`);
  const listed = about.members;
  for (const name of [...NEEDED, "report.html", "verify.html", ...Object.keys(listed)]) {
    if (!members.has(name)) throw new Error(`${name} is missing`);
  }
  for (const [name, data] of members) {
    if (name === "bundle.json") continue;
    if (!Object.hasOwn(listed, name)) throw new Error(`${name} is not listed`);
    if ((await sha256(data)) !== listed[name]) throw new Error(`${name} changed`);
    const below = ["source/", `policies/trial_${about.trial}/`];
    if (!TOP.includes(name) && !below.some((begin) => name.startsWith(begin))) {
      throw new Error(`${name} does not belong in a bundle`);
    }
  }
  const again = { format: about.format, trial: about.trial, members: listed };
  if (`${JSON.stringify(again, null, 1)}\n` !== text) throw new Error("bundle.json changed");
  return about;
};

// ---------------------------------------------------------------------- the journal, an SQLite file

const readTables = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (textOf(bytes.subarray(0, 15)) !== "SQLite format 3") throw new Error("not an SQLite file");
  const size = view.getUint16(16) === 1 ? 65536 : view.getUint16(16);
  const usable = size - bytes[20];
  const varint = (at) => {
    let value = 0n;
    for (let place = 0; place < 8; place += 1) {
      const byte = bytes[at + place];
      value = (value << 7n) | BigInt(byte & 0x7f);
      if (byte < 0x80) return [Number(value), at + place + 1];
    }
    return [Number(BigInt.asIntN(64, (value << 8n) | BigInt(bytes[at + 8]))), at + 9];
  };
  const payload = (at, length) => {  // with its overflow pages
    const largest = usable - 35;
    if (length <= largest) return bytes.subarray(at, at + length);
    const smallest = Math.floor((usable - 12) * 32 / 255) - 23;
    const wanted = smallest + (length - smallest) % (usable - 4);
    const local = wanted <= largest ? wanted : smallest;
    const found = new Uint8Array(length);
    found.set(bytes.subarray(at, at + local));
    let page = view.getUint32(at + local);
    for (let filled = local; filled < length;) {
      if (page === 0) throw new Error("the journal is damaged");
      const start = (page - 1) * size;
      const part = bytes.subarray(start + 4, start + 4 + Math.min(usable - 4, length - filled));
      found.set(part, filled);
      filled += part.length;
      page = view.getUint32(start);
    }
    return found;
  };
  const integers = { 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8 };
  const cellsOf = (data, rowid) => {
    const inner = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const shift = data.byteOffset - bytes.byteOffset;
    const own = data.buffer === bytes.buffer;
    const read = (at) => {
      let value = 0n;
      for (let place = 0; place < 9; place += 1) {
        const byte = inner.getUint8(at + place);
        value = (value << 7n) | BigInt(byte & 0x7f);
        if (byte < 0x80) return [Number(value), at + place + 1];
      }
      throw new Error("the journal is damaged");
    };
    const begin = (at) => (own ? varint(at + shift).map((x, i) => (i ? x - shift : x)) : read(at));
    let [end, at] = begin(0);
    let body = end;
    const cells = [];
    while (at < end) {
      let kind;
      [kind, at] = begin(at);
      if (kind === 0) cells.push(null);
      else if (kind in integers) {
        let value = 0n;
        for (let place = 0; place < integers[kind]; place += 1) {
          value = (value << 8n) | BigInt(inner.getUint8(body + place));
        }
        cells.push(Number(BigInt.asIntN(8 * integers[kind], value)));
        body += integers[kind];
      } else if (kind === 7) {
        cells.push(inner.getFloat64(body));
        body += 8;
      } else if (kind === 8 || kind === 9) cells.push(kind - 8);
      else {
        const length = (kind - (kind % 2 ? 13 : 12)) / 2;
        const part = data.subarray(body, body + length);
        cells.push(kind % 2 ? textOf(part) : part);
        body += length;
      }
    }
    cells.rowid = rowid;
    return cells;
  };
  const rows = function* walk(page, depth = 0) {
    if (depth > 40) throw new Error("the journal is damaged");
    const start = (page - 1) * size;
    const head = page === 1 ? start + 100 : start;
    const count = view.getUint16(head + 3);
    const isLeaf = bytes[head] === 13;
    if (!isLeaf && bytes[head] !== 5) throw new Error("the journal is damaged");
    for (let cell = 0; cell < count; cell += 1) {
      let at = start + view.getUint16(head + (isLeaf ? 8 : 12) + 2 * cell);
      if (!isLeaf) {
        yield* walk(view.getUint32(at), depth + 1);
        continue;
      }
      let length;
      let rowid;
      [length, at] = varint(at);
      [rowid, at] = varint(at);
      yield cellsOf(payload(at, length), rowid);
    }
    if (!isLeaf) yield* walk(view.getUint32(head + 8), depth + 1);
  };
  const tables = {};
  for (const [kind, name, , root] of rows(1)) {
    if (kind === "table") tables[name] = [...rows(root)];
  }
  return tables;
};

const numbersOf = (bytes, whole) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / 8 }, (_, at) =>
    (whole ? Number(view.getBigInt64(8 * at, true)) : view.getFloat64(8 * at, true)));
};
const readJournal = (bytes) => {
  const tables = readTables(bytes);
  const meta = Object.fromEntries(tables.meta.map(([key, text]) => [key, parseJson(text)]));
  const trials = tables.trials.map((cells) => parseJson(cells[2]));
  const evaluations = tables.evaluations.map((cells) => {
    const [trial, stream, replicate, steps, , returns, lengths, names, metrics] = cells;
    const every = numbersOf(metrics, false);
    const known = parseJson(names);
    const each = every.length / (known.length || 1);
    const named = known.map((name, at) => [name, every.slice(at * each, (at + 1) * each)]);
    return { trial, stream, replicate, steps, returns: numbersOf(returns, false),
             lengths: numbersOf(lengths, true), metrics: Object.fromEntries(named) };
  });
  const attributes = tables.attributes.map(([trial, name, value]) =>
    ({ trial, name, value: parseJson(value) }));
  return { meta, trials, evaluations, attributes, loop: parseJson(tables.head[0][4]) };
};

// ---------------------------------------------------------------------- claims, computed again

const DEVIATION = (values) => {
  const centre = statistics.mean(values);
  return Math.sqrt(statistics.mean(values.map((value) => (value - centre) ** 2)));
};
const measure = (metric, row) => {
  const key = metric.replace(/^eval\//, "");
  const [, quantity, statistic] = /^(.*)_([a-z]+)$/.exec(key) || [];
  const over = { return: row.returns, length: row.lengths }[quantity];
  const ways = ["mean", "median", "min", "max"];
  if (over && ways.includes(statistic)) return statistics.aggregate(over, statistic);
  if (over && statistic === "std") return DEVIATION(over);
  if (Object.hasOwn(row.metrics, key)) return statistics.mean(row.metrics[key]);
  throw new Error(`${metric} was not recorded`);
};

const bySeed = (journal, trial, stream) => {  // replicate -> value of its last evaluation
  const last = new Map();
  for (const row of journal.evaluations) {
    if (row.trial !== trial || row.stream !== stream) continue;
    const known = last.get(row.replicate);
    if (!known || known.steps < row.steps) last.set(row.replicate, row);
  }
  const seeds = [...last.keys()].sort((a, b) => a - b);
  return new Map(seeds.map((seed) => [seed, measure(journal.meta.metric, last.get(seed))]));
};

const winnersLooks = (looks, winner, rival, seeds) => {
  const sizes = new Map([[winner, 0], [rival, 0]]);
  const seen = new Set();
  for (const [trial, size] of looks) {
    if (!sizes.has(trial)) continue;
    sizes.set(trial, size);
    seen.add(Math.min(...sizes.values()));
  }
  const shared = [...seen].filter((size) => size > 0 && size < seeds);
  const found = new Map();
  for (const [trial, size, won] of looks) {
    if (trial === winner && won && size >= seeds) break;
    if ((trial === winner || trial === rival) && shared.includes(size)) {
      if (!found.has(`${winner} ${size}`)) found.set(`${winner} ${size}`, size);
    } else if (won && trial !== winner && size >= statistics.FEWEST_SEEDS) {
      if (!found.has(`${trial} ${size}`)) found.set(`${trial} ${size}`, 0);
    }
  }
  return [...found.values()];
};

const close = (one, other) => Math.abs(one - other)
  <= Math.max(1e-9 * Math.max(Math.abs(one), Math.abs(other)), 1e-12);
const against = (journal, claims, winner, rival) => {  // as store/verdict.py
  const sign = journal.meta.goal === "maximize" ? 1 : -1;
  const [ours, theirs] = [winner, rival].map((row) => {
    const values = bySeed(journal, row.trial, "report");
    for (const seed of row.report_diverged) values.set(seed, NaN);
    return values;
  });
  const both = [...ours.keys()].filter((seed) => theirs.has(seed)).sort((a, b) => a - b);
  const ends = claims.possible.map((end, at) => (end === null ? (at ? Infinity : -Infinity) : end));
  const best = claims.best_possible;
  let bounds = { low: ends[0], high: ends[1] };
  if (sign < 0) bounds = { low: -ends[1], high: -ends[0] };
  if (best !== null) bounds.high = sign * best;
  const [own, other] = [[...ours.values()], [...theirs.values()]];
  const same = own.every((value) => value === own[0]) && Number.isFinite(own[0]);
  const shared = same && other.every((value) => value === own[0]);
  const worse = other.filter((value) => Number.isFinite(value) && !close(value, own[0]));
  const isBest = worse.length > 0 && worse.every((value) => sign * value < sign * own[0]);
  let top = null;
  if (best !== null && same && own[0] === best) top = best;
  if (best === null && shared && isBest) [top] = own;
  const pairs = both.map((seed) => [sign * ours.get(seed), sign * theirs.get(seed)]);
  const transposed = (list) => [list.map((pair) => pair[0]), list.map((pair) => pair[1])];
  const [chance, around] = statistics.chanceOfBetter(...transposed(pairs));
  const known = both.filter((seed) =>
    Number.isFinite(ours.get(seed)) && Number.isFinite(theirs.get(seed)));
  const finite = pairs.filter((pair) => pair.every(Number.isFinite));
  const lost = pairs.filter((pair) => !Number.isFinite(pair[1])).length;
  const ownLost = pairs.filter((pair) => !Number.isFinite(pair[0])).length;
  const rows = journal.attributes.filter((one) => one.trial === -1 && one.name === "looks");
  const looks = rows.length ? rows[0].value : [];
  const interim = Boolean((looks.find((look) => look[2]) || [])[3]);
  const earlier = winnersLooks(looks, winner.trial, rival.trial, both.length);
  const about = { rival: "the default", seeds: both.length, probability: chance,
                  probability_interval: around, diverged: lost, own_diverged: ownLost, why: "",
                  by_value: null, limits: null };
  if (!finite.length) {
    const enough = both.length >= statistics.fewestPairs(statistics.levels(earlier, interim)[1]);
    const verdict = ownLost ? "diverged" : enough && lost > ownLost ? "better" : "nothing";
    return { ...about, verdict, pairs: 0, wins: 0, ties: 0, means: null, difference: null,
             standard_error: null, interval: statistics.NOTHING, more_seeds: null, unless: null };
  }
  const [mine, yours] = transposed(finite);
  const before = earlier.map((size) => known.filter((seed) => seed < size).length);
  const found = statistics.decidedPairs(mine, yours, before, bounds, interim);
  let { verdict, more_seeds: more, unless, interval } = found;
  const behind = statistics.mean(mine) < statistics.mean(yours);
  if (ownLost > lost) [verdict, more] = ["diverged", null];
  else if (lost > ownLost && behind && (verdict === "worse" || unless)) {
    [verdict, more, unless, interval] = ["undecided", null, null, statistics.NOTHING];
  }
  if (top !== null && lost === 0 && yours.every((value) => value === sign * top)) {
    [verdict, more] = ["ceiling", null];
  }
  const spread = finite.length > 1
    ? statistics.deviation(finite.map(([a, b]) => a - b)) / Math.sqrt(finite.length) : null;
  return {
    ...about, standard_error: spread, verdict, pairs: finite.length, interval, more_seeds: more,
    wins: finite.filter(([a, b]) => a > b).length, ties: finite.filter(([a, b]) => a === b).length,
    means: [sign * statistics.mean(mine), sign * statistics.mean(yours)],
    difference: statistics.mean(mine) - statistics.mean(yours),
    unless: verdict === "undecided" ? unless : null,
  };
};

// ---------------------------------------------------------------------- sentences, as views/quotes.py

const upper = (text) => {
  const [first] = text.split(" ");
  return first.includes("_") ? text : text.charAt(0).toUpperCase() + text.slice(1);
};
const between = (low, high, shown = number) =>
  (low === null || high === null ? "" : `[${shown(low)}, ${shown(high)}]`);
const ci = (low, high, shown) =>
  (low === null || high === null ? "" : `95 % CI ${between(low, high, shown)}`);
const KINDS = { report: "test", choose: "selection", search: "search" };
const versus = (who, found, metric) => {
  const rival = "the default configuration";
  const seeds = counted(found.seeds, "test seed");
  const diverged = [[who, found.own_diverged], [rival, found.diverged]]
    .filter(([, count]) => count)
    .map(([name, count]) =>
      `The means exclude ${counted(count, "seed")}, on which ${name} diverged.`);
  const chance = () => {
    let { probability: likely, probability_interval: { low, high } } = found;
    if (low === null) return [];
    let [ahead, behind] = [who, rival];
    if (found.difference !== null && found.difference < 0) {
      [likely, low, high, ahead, behind] = [1 - likely, 1 - high, 1 - low, rival, who];
    }
    const two = (value) => fixed(value, 2);
    return [`The probability of improvement of ${ahead} over ${behind} on a new seed is `
      + `${two(likely)} (${ci(low, high, two)}).`];
  };
  const numbers = (interval = found.interval) => {
    const sign = found.difference < 0 ? -1 : 1;
    let ends = [interval.low, interval.high];
    if (ends[0] !== null) ends = ends.map((end) => sign * end).sort((a, b) => a - b);
    const [own, other] = found.means;
    const text = `${who} ${number(own)}, ${rival} ${number(other)}; difference `
      + number(Math.abs(found.difference));
    return ends[0] === null ? text : `${text}, ${ci(...ends)}`;
  };
  const [ahead, behind] = found.verdict === "better" ? [who, rival] : [rival, who];
  const test = statistics.isFew(found.pairs)
    ? "exact two-sample permutation test"
    : "paired by seed, exact sign-flip test";
  switch (found.verdict) {
    case "nothing": case "default": return [];
    case "diverged": return [`${upper(who)} diverged on ${found.own_diverged} of ${seeds}, `
      + `${rival} on ${found.diverged || "none"}.`];
    case "ceiling": return [`${upper(who)} and ${rival} both reach the maximum on ${seeds}.`];
    case "better": case "worse": {
      if (found.difference === null) {
        return [`On ${seeds}, ${ahead} is better than ${behind}, which diverged.`];
      }
      const first = `${upper(ahead)} has a significantly better ${metric} than ${behind}`;
      return [`${first} on ${seeds} (${numbers()}; ${test}).`, ...diverged, ...chance()];
    }
    default: {
      if (found.unless) {
        const [better, worse] = found.difference > 0 ? [who, rival] : [rival, who];
        return [`${upper(better)} has a significantly better ${metric} than ${worse} on ${seeds}, `
          + `provided that fewer than 1 in ${found.unless.one_in} seeds give a result not `
          + `observed on these (${numbers(found.unless.interval)}; ${test}).`, ...diverged];
      }
      const first = `No significant difference in ${metric} was found between ${who} and ${rival}`;
      return [`${first} on ${seeds} (${numbers()}; ${test}).`, ...diverged, ...chance()];
    }
  }
};

// ---------------------------------------------------------------------- what is compared

const differing = (claimed, found, where, wrong) => {
  const isPlain = (value) => value === null || typeof value !== "object";
  if (isPlain(claimed) || isPlain(found)) {
    const equal = typeof claimed === "number" && typeof found === "number"
      ? close(claimed, found) : claimed === found;
    if (!equal) {
      const [a, b] = [claimed, found].map((value) => JSON.stringify(value));
      wrong.push(`${where}: claimed ${a}, but the journal gives ${b}`);
    }
    return;
  }
  for (const key of new Set([...Object.keys(found), ...Object.keys(claimed)])) {
    differing(claimed[key] ?? null, found[key] ?? null, `${where}.${key}`, wrong);
  }
};

const valueClaim = (journal, claims, claim) => {
  const [{ trial, seeds: stream }] = claim.rests_on;
  if (trial !== claims.trial) throw new Error("the claim is about another trial");
  const values = [...bySeed(journal, trial, stream).values()];
  const how = stream === "search" ? journal.meta.aggregate : "mean";
  const [low, high] = claims.possible;
  const bounds = { low: low ?? -Infinity, high: high ?? Infinity };
  const around = statistics.boundedInterval(values, bounds, how);
  const numbers = { value: statistics.aggregate(values, how), seeds: values.length };
  if (around.low !== null) [numbers.low, numbers.high] = [around.low, around.high];
  const shown = number(numbers.value)
    + (around.low === null ? "" : ` (${ci(around.low, around.high)})`);
  const where = claims.environment ? ` on ${claims.environment}` : "";
  const kind = counted(values.length, `${KINDS[stream]} seed`);
  const first = `Trial ${trial} has a ${claims.metric} of ${shown}${where}, over ${kind}.`;
  return { numbers, sentences: [first] };
};
const verdictClaim = (journal, claims) => {
  const rows = new Map(journal.trials.map((row) => [row.trial, row]));
  const first = rows.get(0);
  const rival = first && !first.schedule.length ? first : rows.get(-1);
  if (!rival) throw new Error("the study has no default");
  const numbers = against(journal, claims, rows.get(claims.trial), rival);
  return { numbers, sentences: versus(`trial ${claims.trial}`, numbers, claims.metric) };
};
const costClaim = (journal, claims, claim) => {
  const used = journal.loop.usage;
  if (!used) throw new Error("the journal has no counters");
  const trained = used.search_env_steps + used.confirm_env_steps + used.warmup_env_steps;
  const evaluated = used.eval_env_steps;
  const lengths = journal.evaluations.flatMap((row) => row.lengths);
  const rows = { trained: claim.numbers.rows.trained, evaluated: statistics.sum(lengths) };
  const { unit } = claim.numbers;
  const tail = evaluated ? ` and evaluation ${thousands(evaluated)} env steps.` : ".";
  const sentences = [`Training took ${thousands(trained)} ${unit}${tail}`];
  return { numbers: { trained, evaluated, unit, rows }, sentences };
};
const MAKERS = { value: valueClaim, verdict: verdictClaim, cost: costClaim };

const beyond = (journal) => {  // why this page cannot compute a study's claims
  const { meta } = journal;
  if ((meta.objectives || []).length) return "several objectives";
  if ((meta.constraints || []).length) return "constraints";
  if ((meta.environments || []).length) return "several environments";
  if (/\btraining_weight: *(?!0(\.0)?\s*[,}\n])/.test(meta.study_text)) return "training returns";
  return "";
};
const checkTrials = (journal, trial, wrong) => {
  for (const row of journal.trials) {
    for (const [stream, kept] of [["choose", row.choose_values], ["report", row.report_values]]) {
      const found = [...bySeed(journal, row.trial, stream).values()];
      const shown = kept.filter((value) => !Number.isNaN(value));
      if (!shown.every((value, at) => found[at] !== undefined && close(value, found[at]))) {
        const kind = KINDS[stream];
        wrong.push(`trial ${row.trial}'s ${kind} values differ from its evaluations`);
      }
    }
  }
  const sign = journal.meta.goal === "maximize" ? 1 : -1;
  const most = Math.max(...journal.trials.map((row) => row.choose_values.length));
  const confirmed = journal.trials.filter((row) => most && row.choose_values.length === most
    && row.state === "finished");
  const ranked = confirmed.map((row) => [sign * statistics.mean(row.choose_values), row.trial]);
  ranked.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  if (ranked.length && ranked[0][1] !== trial) return `trial ${ranked[0][1]} has the best `
    + "selection value; this bundle is about another trial";
  return "";
};
const recompute = (members, about) => {
  const claims = parseJson(textOf(members.get("claims.json")));
  const journal = readJournal(members.get("journal.sqlite"));
  const wrong = [];
  if (claims.trial !== about.trial) wrong.push("claims.json is about another trial");
  if (claims.study !== journal.meta.name) wrong.push("claims.json is about another study");
  if (textOf(members.get("study.resolved.yaml")) !== journal.meta.study_text) {
    wrong.push("study.resolved.yaml is not the study in the journal");
  }
  const unable = beyond(journal);
  const note = unable ? "" : checkTrials(journal, claims.trial, wrong);
  const found = claims.claims.map((claim) => {
    const make = MAKERS[claim.about];
    if (!make || (unable && claim.about !== "cost")) {
      const why = unable ? `this page does not compute ${unable}` : "it involves more trials";
      return { ...claim, status: "open", why };
    }
    const mistakes = [];
    const again = make(journal, claims, claim);
    differing(claim.numbers, again.numbers, `${claim.about}.numbers`, mistakes);
    const said = claim.sentences.slice(0, again.sentences.length);
    const ranked = /^Trial -?\d+ has rank \d+ of \d+ trials\.$/;
    const more = claim.sentences.slice(again.sentences.length).filter((one) => !ranked.test(one));
    differing([...said, ...more], again.sentences, `${claim.about}.sentences`, mistakes);
    wrong.push(...mistakes);
    return { ...claim, status: mistakes.length ? "wrong" : "holds" };
  });
  const verdict = found.find((claim) => claim.about === "verdict");
  if (verdict && verdict.status === "holds" && !note) {
    differing(claims.conclusion.against, verdict.numbers, "conclusion.against", wrong);
  }
  return { claims: found, wrong, note, study: claims.study, trial: claims.trial };
};

const verifyBundle = async (content) => {
  const answer = { holds: false, sha256: await sha256(content), claims: [], wrong: [], note: "" };
  let members;
  let about;
  try {
    members = unpack(content);
    about = await checkManifest(members);
  } catch (error) {
    const again = members ? "" : await packedAgain(content).catch(() => "");
    return { ...answer, damaged: again || error.message };
  }
  try {
    const found = recompute(members, about);
    const report = textOf(members.get("report.html"));
    return { ...answer, ...found, holds: found.wrong.length === 0, members: members.size - 1, report };
  } catch (error) {
    return { ...answer, wrong: [`its contents are inconsistent: ${error.message}`] };
  }
};

// ---------------------------------------------------------------------- the page

const showAnswer = (name, answer) => {
  const element = (tag, text, kind) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const place = document.getElementById("answer");
  place.replaceChildren();
  const holds = answer.claims.filter((claim) => claim.status === "holds").length;
  const open = answer.claims.filter((claim) => claim.status === "open").length;
  let head = `${name} failed the check.`;
  if (answer.holds) {
    head = `${name} is intact, and ${holds} of ${counted(answer.claims.length, "claim")} `
      + `${holds === 1 ? "was" : "were"} recomputed with equal results`;
    head += open ? `; ${open} could not be computed here.` : ".";
  }
  place.append(element("h2", head, answer.holds ? "yes" : "no"));
  if (answer.damaged) place.append(element("p", `Why: ${answer.damaged}.`));
  const list = element("ul", "");
  for (const text of answer.wrong) list.append(element("li", text));
  if (answer.wrong.length) place.append(list);
  if (answer.note) place.append(element("p", `Note: ${answer.note}.`));
  const words = { holds: "recomputed, equal", wrong: "DIFFERS from the journal" };
  for (const claim of answer.claims) {
    const box = element("section", "", claim.status);
    box.append(element("h3", `${claim.about}: ${words[claim.status] || `not computed: ${claim.why}`}`));
    for (const said of claim.sentences) box.append(element("p", said));
    place.append(box);
  }
  place.append(element("p", `sha256 ${answer.sha256}`, "sum"));
  if (answer.holds) {
    place.append(element("p", "Not checked here: whether the journal is genuine (hpo verify "
      + "--retrain), the policy (--play), the Parquet tables, the code and the report below.",
      "note"));
    const frame = document.createElement("iframe");
    frame.title = "The report in the bundle";
    frame.setAttribute("sandbox", "allow-scripts");
    frame.srcdoc = answer.report;
    place.append(frame);
  }
};

if (typeof document !== "undefined") {
  const drop = document.getElementById("drop");
  const input = document.getElementById("file");
  const take = async (file) => {
    if (!file) return;
    document.getElementById("answer").textContent = `Checking ${file.name} ...`;
    const content = new Uint8Array(await file.arrayBuffer());
    const started = performance.now();
    const answer = await verifyBundle(content);
    showAnswer(file.name, answer);
    const seconds = (performance.now() - started) / 1000;
    document.body.dataset.holds = String(answer.holds);
    document.body.dataset.seconds = seconds.toFixed(2);
  };
  input.addEventListener("change", () => take(input.files[0]));
  for (const kind of ["dragover", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      if (kind === "drop") take(event.dataTransfer.files[0]);
    });
  }
  drop.hidden = false;
}
if (typeof module !== "undefined") {
  module.exports = { verifyBundle, number, fixed, significant, parseJson, readTables, against };
}
