"use strict";
// The statistics of a verdict, as in store/: statistics.py, unobserved.py, permutation_tests.py,
// mean_difference.py, probability_of_improvement.py and comparison.py. Formulas and random numbers
// (NumPy's PCG64) are the same, so that both give equal intervals.
const statistics = (() => {
  const LEVEL = 0.95;
  const RESAMPLES = 2000;
  const DRAWS = 10000;

  // -------------------------------------------------------------------- sums and moments

  const sum = (values) => {  // correctly rounded, as math.fsum (Shewchuk 1997)
    const partials = [];
    for (let x of values) {
      let kept = 0;
      for (let y of partials) {
        if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
        const high = x + y;
        const low = y - (high - x);
        if (low !== 0) partials[kept++] = low;
        x = high;
      }
      partials.length = kept;
      partials.push(x);
    }
    let total = 0;
    let rest = 0;
    while (partials.length) {
      const x = total;
      const y = partials.pop();
      total = x + y;
      rest = y - (total - x);
      if (rest !== 0) break;
    }
    const next = partials[partials.length - 1];
    if (partials.length && ((rest < 0 && next < 0) || (rest > 0 && next > 0))) {
      const doubled = 2 * rest;
      const moved = total + doubled;
      if (doubled === moved - total) total = moved;
    }
    return total;
  };
  const mean = (values) => sum(values) / values.length;
  const squares = (values) => {
    const centre = mean(values);
    return sum(values.map((value) => (value - centre) ** 2));
  };
  const variance = (values) => squares(values) / (values.length - 1);
  const deviation = (values) => Math.sqrt(variance(values));
  const ordered = (values) => [...values].sort((a, b) => a - b);
  const median = (values) => {
    const sorted = ordered(values);
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : mean([sorted[half - 1], sorted[half]]);
  };
  const iqm = (values) => {
    const cut = Math.floor(values.length / 4);
    return mean(ordered(values).slice(cut, values.length - cut));
  };
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const AGGREGATES = { mean, median, iqm, min: least, max: most };
  const aggregate = (values, kind) => AGGREGATES[kind](values);

  // -------------------------------------------------------------------- quantiles

  const logGamma = (x) => {  // Lanczos, g = 607 / 128
    const terms = [
      0.99999999999999709182, 57.156235665862923517, -59.597960355475491248,
      14.136097974741747174, -0.49191381609762019978, 0.33994649984811888699e-4,
      0.46523628927048575665e-4, -0.98374475304879564677e-4, 0.15808870322491248884e-3,
      -0.21026444172410488319e-3, 0.2174396181152126432e-3, -0.16431810653676389022e-3,
      0.84418223983852743293e-4, -0.26190838401581408670e-4, 0.36899182659531622704e-5,
    ];
    let series = terms[0];
    for (let at = 1; at < terms.length; at += 1) series += terms[at] / (x + at);
    const t = x + 607 / 128 + 0.5;
    return (x + 0.5) * Math.log(t) - t + Math.log(2.5066282746310005 * series / x);
  };
  const fraction = (a, b, x) => {  // of the incomplete beta function, by Lentz's method
    const tiny = 1e-300;
    let c = 1;
    let d = 1 - (a + b) * x / (a + 1);
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    let found = d;
    for (let m = 1; m < 500; m += 1) {
      for (const term of [
        m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
        -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
      ]) {
        d = 1 + term * d;
        d = 1 / (Math.abs(d) < tiny ? tiny : d);
        c = 1 + term / c;
        c = Math.abs(c) < tiny ? tiny : c;
        found *= d * c;
        if (Math.abs(d * c - 1) < 1e-16) return found;
      }
    }
    return found;
  };
  const betaShare = (a, b, x) => {  // the regularised incomplete beta function
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    const front = Math.exp(
      logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * fraction(a, b, x) / a;
    return 1 - front * fraction(b, a, 1 - x) / b;
  };
  const bisected = (rises, low, high, target) => {  // where a rising function has a value
    for (let step = 0; step < 200 && high - low > 1e-17 * Math.abs(high); step += 1) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (rises(middle) < target) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  };
  const betaQuantile = (a, b, share) => bisected((x) => betaShare(a, b, x), 0, 1, share);
  const tShare = (t, degrees) => betaShare(degrees / 2, 0.5, degrees / (degrees + t * t));
  const known = new Map();
  const tQuantile = (probability, degrees) => {
    const key = `${probability} ${degrees}`;
    if (!known.has(key)) {
      const tails = 2 * (1 - probability);  // both; falls as t rises
      known.set(key, bisected((t) => -tShare(t, degrees), 0, 1e8, -tails));
    }
    return known.get(key);
  };
  const normalTail = (z) => {  // the share of a normal beyond z > 0, by a continued fraction
    if (z < 2) {
      let term = z;
      let series = z;
      for (let at = 1; at < 200; at += 1) {
        term *= z * z / (2 * at + 1);
        series += term;
      }
      return 0.5 - series * Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI);
    }
    let below = z;
    for (let at = 200; at > 0; at -= 1) below = z + at / below;
    return Math.exp(-z * z / 2) / Math.sqrt(2 * Math.PI) / below;
  };
  const quantile = (values, share) => {  // linear between neighbours
    const sorted = ordered(values);
    const place = share * (sorted.length - 1);
    const at = Math.floor(place);
    const next = sorted[Math.min(at + 1, sorted.length - 1)];
    return sorted[at] + (next - sorted[at]) * (place - at);
  };

  // -------------------------------------------------------------------- NumPy's random numbers

  const MASK = (1n << 128n) - 1n;
  const WORD = (1n << 64n) - 1n;
  const STEP = 47026247687942121848144207491837523525n;
  const SEEDED = [  // (state, increment) of numpy.random.PCG64(0), (1) and (2)
    [35399562948360463058890781895381311971n, 87136372517582989555478159403783844777n],
    [207833532711051698738587646355624148094n, 194290289479364712180083596243593368443n],
    [139756322654377766727085075210351969228n, 121863417007658695389390353187995180015n],
  ];
  const RADIUS = 7.69711747013104972;  // where the tail of the exponential ziggurat begins
  const AREA = 0.0039496598225815571993;
  const ziggurat = (() => {
    const bits = 2 ** 53;
    const k = new Float64Array(256);
    const w = new Float64Array(256);
    const f = new Float64Array(256);
    let x = RADIUS;
    let last = RADIUS;
    const base = AREA / Math.exp(-RADIUS);
    k[0] = Math.floor(RADIUS / base * bits);
    w[0] = base / bits;
    w[255] = RADIUS / bits;
    f[0] = 1;
    f[255] = Math.exp(-RADIUS);
    for (let at = 254; at >= 1; at -= 1) {
      x = -Math.log(AREA / x + Math.exp(-x));
      k[at + 1] = Math.floor(x / last * bits);
      last = x;
      f[at] = Math.exp(-x);
      w[at] = x / bits;
    }
    return { k, w, f };
  })();

  class Random {
    constructor(seed) {
      [this.state, this.step] = SEEDED[seed];
      this.half = null;
    }

    word() {  // 64 random bits
      this.state = (this.state * STEP + this.step) & MASK;
      const turn = this.state >> 122n;
      const mixed = ((this.state >> 64n) ^ this.state) & WORD;
      return ((mixed >> turn) | (mixed << (64n - turn))) & WORD;
    }

    halfWord() {  // 32 random bits: the low ones of a word first
      if (this.half !== null) {
        const kept = this.half;
        this.half = null;
        return kept;
      }
      const word = this.word();
      this.half = Number(word >> 32n);
      return Number(word & 0xffffffffn);
    }

    below(count) {  // Lemire 2019
      if (count === 1) return 0;
      const threshold = 2 ** 32 % count;
      for (;;) {
        const product = BigInt(this.halfWord()) * BigInt(count);
        const low = Number(product & 0xffffffffn);
        if (low >= threshold) return Number(product >> 32n);
      }
    }

    uniform() {
      return Number(this.word() >> 11n) / 2 ** 53;
    }

    exponential() {
      for (;;) {
        const word = this.word() >> 3n;
        const layer = Number(word & 0xffn);
        const height = Number(word >> 8n);
        const x = height * ziggurat.w[layer];
        if (height < ziggurat.k[layer]) return x;
        if (layer === 0) return RADIUS - Math.log1p(-this.uniform());
        const { f } = ziggurat;
        if ((f[layer - 1] - f[layer]) * this.uniform() + f[layer] < Math.exp(-x)) return x;
      }
    }

    upTo(most) {  // by rejection below the next power of two, as in shuffles
      const mask = 2 ** (32 - Math.clz32(most)) - 1;
      for (;;) {
        const found = (this.halfWord() & mask) >>> 0;
        if (found <= most) return found;
      }
    }

    permutation(count) {
      const found = Array.from({ length: count }, (_, at) => at);
      for (let at = count - 1; at > 0; at -= 1) {
        const other = this.upTo(at);
        [found[at], found[other]] = [found[other], found[at]];
      }
      return found;
    }
  }

  // -------------------------------------------------------------------- one mean

  const NOTHING = { low: null, high: null, kind: "none" };
  const expandedTail = (count, degrees, level = 1 - LEVEL) =>
    normalTail(Math.sqrt(count / (count - 1)) * tQuantile(1 - level / 2, degrees));
  const enough = (values) => values.length >= 5 && values.every(Number.isFinite);

  const bootstrap = (values, kind) => {
    const random = new Random(0);
    const found = [];
    for (let sample = 0; sample < RESAMPLES; sample += 1) {
      const drawn = values.map(() => values[random.below(values.length)]);
      found.push(aggregate(drawn, kind));
    }
    const tail = expandedTail(values.length, values.length - 1);
    return { low: quantile(found, tail), high: quantile(found, 1 - tail), kind: "bootstrap" };
  };
  const interval = (values, kind = "mean") => {
    if (kind === "min" || kind === "max" || !enough(values)) return NOTHING;
    if (least(values) === most(values)) return NOTHING;
    if (values.length > 10) return bootstrap(values, kind);
    if (kind !== "mean") return NOTHING;
    const quantile975 = tQuantile(1 - (1 - LEVEL) / 2, values.length - 1);
    const reach = quantile975 * Math.sqrt(variance(values) / values.length);
    return { low: mean(values) - reach, high: mean(values) + reach, kind: "t" };
  };

  const within = (found, bounds) => {
    if (found.low === null) return found;
    const clip = (end) => Math.min(Math.max(end, bounds.low), bounds.high);
    return { low: clip(found.low), high: clip(found.high), kind: found.kind };
  };

  // -------------------------------------------------------------------- unseen outcomes

  const FROM_ZERO = 1.5;
  const BEYOND = 1.2;
  const SETTLED = 0.1;
  const SETTLED_ALONE = 0.02;
  const POWER = 4;
  const TAIL_POWER = 8;
  const CHANCE = 0.5;

  const noise = (values, distance) => {
    const fromZero = (1 + FROM_ZERO) * Math.abs(mean(values)) + 1e-3 * distance;
    return Math.sqrt(variance(values)) / Math.min(distance, fromZero);
  };
  const tailOf = (values, sign) => {
    const centre = mean(values);
    return sum(values.map((v) => Math.max(0, sign * (v - centre)) ** 2)) / values.length;
  };
  const longerTail = (own, other, sign) => {
    const [ours, theirs] = [tailOf(own, sign), tailOf(other, sign)];
    return ours > theirs ? (ours - theirs) / (ours + theirs) : 0;
  };
  const farthest = (own, other, bounds, sign) => {
    const longer = longerTail(own, other, sign);
    let end = sign > 0 ? bounds.high : bounds.low;
    if (!Number.isFinite(end)) {
      const [low, high] = [least([...own, ...other]), most([...own, ...other])];
      const fromZero = Math.max(0, low, -high);
      const beyond = Math.max(FROM_ZERO * fromZero, BEYOND * longer * (high - low));
      end = sign > 0 ? high + beyond : low - beyond;
    }
    const distance = sign * (end - mean(own));
    if (distance <= 0) return [end, 0];
    const settled = 1 / (1 + (noise(own, distance) / SETTLED) ** POWER);
    return [end, Math.max(settled, longer ** TAIL_POWER)];
  };
  const hidden = (ours, theirs, bounds) => {
    const found = [];
    for (const sign of [-1, 1]) {
      const [own, ownWeight] = farthest(ours, theirs, bounds, sign);
      found.push({ sign, difference: own - mean(theirs), weight: ownWeight, ofOurs: true, value: own });
      const [other, otherWeight] = farthest(theirs, ours, bounds, -sign);
      found.push({ sign, difference: mean(ours) - other, weight: otherWeight, ofOurs: false,
                   value: other });
    }
    return found;
  };
  let shares = null;
  const stratified = () => {
    shares = shares || new Random(2).permutation(DRAWS).map((place) => (place + 1) / DRAWS);
    return shares;
  };
  const weighted = (values, stream = 0) => {
    if (values.length > 100) throw new Error("more than 100 seeds: verify it with hpo verify");
    const random = new Random(stream);
    const centre = mean(values);
    const found = new Float64Array(DRAWS);
    for (let draw = 0; draw < DRAWS; draw += 1) {
      let total = 0;
      let moved = 0;
      for (const value of values) {
        const weight = random.exponential();
        total += weight;
        moved += weight * (value - centre);
      }
      found[draw] = centre + moved / total;
    }
    return found;
  };
  const mixed = (drawn, worst, count) => {
    const even = stratified();
    return drawn.map((value, at) => {
      const share = 1 - even[at] ** (1 / count);
      return (1 - share) * value + share * worst;
    });
  };
  const placed = (drawn, chance) =>
    Float64Array.from(drawn).sort()[Math.max(0, Math.floor(chance * DRAWS) - 1)];
  const counting = (causes, level) => causes.filter((one) => one.weight * CHANCE > level);
  const pairedEnds = (ours, theirs, level, bounds) => {
    const causes = counting(hidden(ours, theirs, bounds), level);
    if (!causes.length) return [];
    const differences = ours.map((value, at) => value - theirs[at]);
    const drawn = weighted(differences);
    return causes.map((cause) => {
      const moved = mixed(drawn, cause.difference, differences.length);
      const facing = moved.map((value) => -cause.sign * value);
      return { at: -cause.sign * placed(facing, level / cause.weight), cause };
    });
  };
  const unpairedEnds = (ours, theirs, level, bounds) => {
    const causes = counting(hidden(ours, theirs, bounds), level);
    if (!causes.length) return [];
    const [a, b] = [weighted(ours, 0), weighted(theirs, 1)];
    return causes.map((cause) => {
      const [left, right] = cause.ofOurs
        ? [mixed(a, cause.value, ours.length), b]
        : [a, mixed(b, cause.value, theirs.length)];
      const facing = left.map((value, at) => -cause.sign * (value - right[at]));
      return { at: -cause.sign * placed(facing, level / cause.weight), cause };
    });
  };
  const lowestAlone = (values, worst) => {
    const distance = mean(values) - worst;
    if (!Number.isFinite(worst) || distance <= 0) return Infinity;
    const chance = (1 - LEVEL) * (1 + (noise(values, distance) / SETTLED_ALONE) ** POWER);
    if (chance >= CHANCE) return Infinity;
    return placed(mixed(weighted(values), worst, values.length), chance);
  };
  const boundedInterval = (values, bounds, kind = "mean") => {
    let found = interval(values, kind);
    const finite = Number.isFinite(bounds.low) && Number.isFinite(bounds.high);
    if (kind === "mean" && finite && enough(values) && least(values) === most(values)) {
      found = { low: values[0], high: values[0], kind: "exact" };
    }
    if (found.low === null || kind !== "mean") return within(found, bounds);
    let { low, high } = found;
    if (most(values) >= bounds.high || found.kind === "exact") {
      low = Math.min(low, lowestAlone(values, bounds.low));
    }
    if (least(values) <= bounds.low || found.kind === "exact") {
      high = Math.max(high, -lowestAlone(values.map((value) => -value), -bounds.high));
    }
    return within({ low, high, kind: found.kind }, bounds);
  };

  // -------------------------------------------------------------------- looks

  const FEWEST_SEEDS = 4;
  const isFew = (pairs) => pairs >= FEWEST_SEEDS && pairs < fewestPairs(0.04);
  const levelOf = (look, interim, few) => {
    if (few) return look === 1 ? 0.03 : 0.016 * 0.2 ** (look - 2);
    const place = interim && look < 3 ? 3 - look : look;
    return 0.04 * 0.2 ** (place - 1);
  };
  const fewestPairs = (level) => Math.ceil(1 - Math.log2(level));
  const levels = (earlier, interim, now = 0) => {
    const found = [];
    let look = 1;
    let few = false;
    for (const pairs of earlier) {
      if (look === 1 && !interim && isFew(pairs)) few = true;
      const level = levelOf(look, interim, few);
      const fewest = few && look === 1 ? FEWEST_SEEDS : fewestPairs(level);
      if (pairs && pairs < fewest) {
        look = Math.max(look, interim ? 2 : 1);
        continue;
      }
      if (pairs) found.push([pairs, level]);
      look += 1;
    }
    few = few || (look === 1 && !interim && isFew(now));
    return [found, levelOf(look, interim, few)];
  };

  // -------------------------------------------------------------------- pairs

  const isRounding = (difference, ours, theirs) =>
    Math.abs(difference) <= 1e-12 * most([...ours, ...theirs].map(Math.abs));
  const signFlips = (differences) => {
    const sizes = differences.filter((value) => value !== 0).map(Math.abs);
    if (!sizes.length) return 1;
    const seen = Math.abs(sum(differences)) - 1e-9 * sum(sizes);
    if (sizes.length > 100) {
      const error = deviation(differences) * Math.sqrt(differences.length);
      return tShare(Math.abs(sum(differences)) / error, differences.length - 1);
    }
    if (sizes.length > 14) {
      const random = new Random(0);
      let far = 0;
      for (let flip = 0; flip < 19999; flip += 1) {
        let total = 0;
        for (const size of sizes) total += random.below(2) ? size : -size;
        far += Math.abs(total) >= seen;
      }
      return (1 + far) / 20000;
    }
    let totals = [sizes[0]];
    for (const size of sizes.slice(1)) {
      totals = [...totals.map((total) => total - size), ...totals.map((total) => total + size)];
    }
    return totals.filter((total) => Math.abs(total) >= seen).length / totals.length;
  };
  const student = (values, tail) => {
    const reach = tQuantile(tail, values.length - 1) * deviation(values) / Math.sqrt(values.length);
    return [mean(values) - reach, mean(values) + reach];
  };
  const hall = (values, tail, weight) => {
    const count = values.length;
    const centre = mean(values);
    const plain = Math.sqrt(sum(values.map((v) => (v - centre) ** 2)) / count);
    const third = weight * sum(values.map((v) => (v - centre) ** 3)) / count;
    const skewness = plain ** 3 > 0 ? third / plain ** 3 : 0;
    if (Math.abs(skewness) < 1e-6) return student(values, tail);
    const reach = tQuantile(tail, count - 1) / Math.sqrt(count);
    const [low, high] = [reach, -reach].map((end) =>
      3 / skewness * (Math.cbrt(1 + skewness * (end - skewness / (6 * count))) - 1));
    return [centre - deviation(values) * low, centre - deviation(values) * high];
  };
  const seenInterval = (differences, ours, theirs, level) => {
    const tail = 1 - level / 2;
    const [a, b] = [variance(ours), variance(theirs)];
    const unlike = a + b > 0 ? ((a - b) / (a + b)) ** 4 : 1;
    let [low, high] = hall(differences, tail, unlike);
    if (least(differences) * most(differences) >= 0) {
      const plain = student(differences, tail);
      if (most(differences) > 0) low = Math.max(low, plain[0]);
      else high = Math.min(high, plain[1]);
    }
    return { low, high, kind: unlike > 0.5 ? "hall" : "t" };
  };
  const withZero = (found) =>
    ({ low: Math.min(found.low, 0), high: Math.max(found.high, 0), kind: found.kind });
  const paired = (ours, theirs, level, bounds) => {
    const differences = ours.map((value, at) => value - theirs[at]);
    const nothing = { seen: NOTHING, whole: NOTHING, worst: 0 };
    if (differences.length < 6 || !differences.every(Number.isFinite)) return nothing;
    const alike = isRounding(most(differences) - least(differences), ours, theirs);
    if (alike && isRounding(mean(differences), ours, theirs)) return nothing;
    let seen = seenInterval(differences, ours, theirs, level);
    if (signFlips(differences) > level) seen = withZero(seen);
    const found = withUnseen(seen, ours, theirs, pairedEnds(ours, theirs, level, bounds), bounds);
    const { whole } = found;
    if (alike && whole.low === seen.low && whole.high === seen.high) return nothing;
    return found;
  };
  const withUnseen = (seen, ours, theirs, unseen, bounds) => {
    const falls = least(unseen.filter((end) => end.cause.sign < 0).map((end) => end.at));
    const rises = most(unseen.filter((end) => end.cause.sign > 0).map((end) => end.at));
    const low = Math.min(seen.low, Math.max(falls, 0));
    const high = Math.max(seen.high, Math.min(rises, 0));
    const same = low === seen.low && high === seen.high;
    const centre = mean(ours) - mean(theirs);
    const ends = { low: bounds.low - bounds.high, high: bounds.high - bounds.low };
    const clipped = (given) => {
      const inside = within(given, ends);
      return { low: Math.min(inside.low, centre), high: Math.max(inside.high, centre),
               kind: given.kind };
    };
    const whole = clipped({ low, high, kind: same ? seen.kind : "unseen" });
    const turning = unseen.filter((end) => end.at * centre <= 0).map((end) => end.cause.difference);
    const worst = turning.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
    return { seen: clipped(seen), whole, worst };
  };
  const welch = (a, b, level) => {
    const shares = [a, b].map((values) => variance(values) / values.length);
    const [centre, total] = [mean(a) - mean(b), sum(shares)];
    if (total === 0) return { low: centre, high: centre, kind: "t" };
    const split = sum(shares.map((share, at) => share ** 2 / ([a, b][at].length - 1)));
    const degrees = Math.max(1, Math.floor(total ** 2 / split));
    const reach = tQuantile(1 - level / 2, degrees) * Math.sqrt(total);
    return { low: centre - reach, high: centre + reach, kind: "t" };
  };
  const splitShare = (ours, theirs) => {  // of all splits, those with means as far apart
    const both = [...ours, ...theirs];
    const centre = mean(both);
    const seen = Math.abs(sum(ours.map((value) => value - centre)))
      - 1e-9 * sum(both.map(Math.abs));
    let [far, all] = [0, 0];
    const choose = (at, left, total) => {
      if (left === 0) {
        all += 1;
        far += Math.abs(total) >= seen;
        return;
      }
      for (let next = at; next <= both.length - left; next += 1) {
        choose(next + 1, left - 1, total + both[next] - centre);
      }
    };
    choose(0, ours.length, 0);
    return far / all;
  };
  const few = (ours, theirs, level, bounds) => {
    if (![...ours, ...theirs].every(Number.isFinite)) {
      return { seen: NOTHING, whole: NOTHING, worst: 0 };
    }
    let seen = welch(ours, theirs, level);
    const equal = isRounding(mean(ours) - mean(theirs), ours, theirs);
    if (splitShare(ours, theirs) > level || equal) seen = withZero(seen);
    return withUnseen(seen, ours, theirs, unpairedEnds(ours, theirs, level, bounds), bounds);
  };
  const compared = (ours, theirs, level, bounds) =>
    (isFew(ours.length) ? few : paired)(ours, theirs, level, bounds);
  const overLooks = (ours, theirs, earlier, bounds, interim) => {
    const [before, level] = levels(earlier, interim, ours.length);
    const now = compared(ours, theirs, level, bounds).whole;
    if (now.low === null) return now;
    let { low, high } = now;
    for (const [pairs, at] of before) {
      const then = compared(ours.slice(0, pairs), theirs.slice(0, pairs), at, bounds).whole;
      if (then.low !== null) [low, high] = [Math.max(low, then.low), Math.min(high, then.high)];
    }
    return low <= high ? { low, high, kind: now.kind } : now;
  };
  const seedsToTell = (gap, spread, level) => {
    if (gap === 0) return null;
    const ratio = spread / Math.abs(gap);
    const suffices = (count) => {
      const degrees = Math.min(count - 1, 1000);
      const reach = tQuantile(1 - level / 2, degrees) + tQuantile(0.8, degrees);
      return reach * ratio <= Math.sqrt(count);
    };
    let [low, high] = [2, 2 ** 19 + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (suffices(middle)) high = middle;
      else low = middle + 1;
    }
    return low <= 2 ** 19 ? low : null;
  };
  const seedsToTrust = (gap, causes, level) => {
    let found = 1;
    for (const one of counting(causes, level)) {
      if (one.difference * gap >= 0) continue;
      const rate = Math.log1p(Math.abs(gap / one.difference));
      found = Math.max(found, Math.ceil(-Math.log(level / one.weight) / rate));
    }
    return found;
  };
  const unlessOf = ({ seen, whole, worst }) => {
    if (seen.low === null || whole.low === null) return null;
    if (seen.low <= 0 && seen.high >= 0) return null;
    if (!(whole.low <= 0 && whole.high >= 0) || !worst) return null;
    const nearest = Math.min(Math.abs(seen.low), Math.abs(seen.high));
    return { interval: seen, one_in: Math.ceil(1 + Math.abs(worst) / nearest) };
  };
  const decidedPairs = (ours, theirs, earlier, bounds, interim) => {
    const differences = ours.map((value, at) => value - theirs[at]);
    const gap = mean(differences);
    const count = differences.length;
    const found = overLooks(ours, theirs, earlier, bounds, interim);
    const answer = (verdict, more = null, unless = null) =>
      ({ verdict, interval: found, more_seeds: more, unless });
    const [before, now] = levels(earlier, interim, count);
    const fewest = !before.length && now === 0.03 ? FEWEST_SEEDS : fewestPairs(now);
    if (count < fewest) return answer("undecided", fewest - count);
    if (found.low === null) {
      if (isRounding(gap, ours, theirs)) return answer("no_difference");
      return answer(gap > 0 ? "better" : "worse");
    }
    if (found.low > 0) return answer("better");
    if (found.high < 0) return answer("worse");
    const level = levels([...earlier, count], interim)[1];
    let needed = seedsToTell(gap, deviation(differences), level);
    if (needed !== null) {
      const unequal = differences.filter((value) => value !== 0).length / count;
      needed = Math.max(needed, Math.ceil(fewestPairs(level) / unequal));
      needed = Math.max(needed, seedsToTrust(gap, hidden(ours, theirs, bounds), level));
    }
    const unless = unlessOf(compared(ours, theirs, now, bounds));
    const tooMany = needed === null || needed > 4 * count;
    const more = tooMany ? null : Math.max(1, needed - count);
    if (tooMany && unless === null) return answer("no_difference");
    return answer("undecided", more, unless);
  };
  const binomialInterval = (hits, count) => {
    const tail = (1 - LEVEL) / 2;
    const missed = count - hits;
    return {
      low: hits > 0 ? betaQuantile(hits, missed + 1, tail) : 0,
      high: missed > 0 ? betaQuantile(hits + 1, missed, 1 - tail) : 1,
      kind: "exact",
    };
  };
  const chanceOfBetter = (ours, theirs) => {
    const value = (one) => (Number.isFinite(one) ? one : -Infinity);
    const hits = ours.map((one, at) => {
      const [a, b] = [value(one), value(theirs[at])];
      return (a > b ? 1 : 0) + (a === b ? 0.5 : 0);
    });
    const chance = mean(hits);
    if (hits.length < 5) return [chance, NOTHING];
    return [chance, binomialInterval(chance * hits.length, hits.length)];
  };

  return {
    aggregate, binomialInterval, boundedInterval, chanceOfBetter, decidedPairs, deviation,
    fewestPairs,
    FEWEST_SEEDS, interval, isFew, levels, mean, median, NOTHING, Random, sum, tQuantile,
  };
})();
if (typeof module !== "undefined") module.exports = { statistics };
