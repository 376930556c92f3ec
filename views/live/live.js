"use strict";
// Pieces of the page are asked for one by one, and again when their study has changed.
(() => {
  const SOON = 300, RUNNING = 2000, RESTING = 10000, AT_ONCE = 4;
  const pieces = [...document.querySelectorAll(".piece")].map((place) => (
    { place, study: place.dataset.study, part: place.dataset.part, has: "", wanted: "", text: null,
      seen: false, busy: false }));
  const studies = [...new Set(pieces.map((piece) => piece.study))];
  const versions = new Map();
  const way = (...words) => "/" + words.map(encodeURIComponent).join("/");
  let skew = 0, first = true;

  const lost = (text) => {
    const line = document.getElementById("lost");
    line.hidden = text === "";
    if (text) line.textContent = text;
  };

  // ------------------------------------------------------------ pieces

  const source = (piece) =>
    piece.part === "list" ? "/list-part" : way("part", piece.study, piece.part);

  const fill = (place, text) => {
    place.innerHTML = text;
    place.dispatchEvent(new Event("drawn", { bubbles: true }));
    const section = place.closest("section[id]");
    if (!section) return;
    section.hidden = text === "";  // the study has nothing to show there
    document.querySelector(`nav a[href="#${section.id}"]`).hidden = text === "";
  };
  const focusable = "a, button, input, select, summary, [tabindex]";
  const replace = (place, text) => {  // what a reader did to the piece stays
    const boxes = [...place.querySelectorAll(".scroll, pre")].map((b) => [b.scrollLeft, b.scrollTop]);
    const heads = [...place.querySelectorAll("th")].map((head) => head.getAttribute("aria-sort"));
    const open = [...place.querySelectorAll("details")].map((details) => details.open);
    const focus = [...place.querySelectorAll(focusable)].indexOf(document.activeElement);
    fill(place, text);
    place.querySelectorAll("th").forEach((head, at) => {
      const button = head.querySelector("button");
      if (button && heads[at]) button.click();
      if (button && heads[at] === "descending") button.click();
    });
    place.querySelectorAll(".scroll, pre").forEach((box, at) => {
      if (boxes[at]) [box.scrollLeft, box.scrollTop] = boxes[at];
    });
    place.querySelectorAll("details").forEach((details, at) => {
      if (open[at] !== undefined) details.open = open[at];
    });
    if (focus >= 0) place.querySelectorAll(focusable)[focus]?.focus({ preventScroll: true });
    age();
  };

  const say = (place, text) => {
    place.innerHTML = '<p class="nothing"></p>';
    place.firstChild.textContent = text;
  };

  const draw = async (piece) => {
    const version = piece.wanted;
    piece.busy = true;
    try {
      const answer = await fetch(source(piece));
      const text = await answer.text();
      if (!answer.ok) say(piece.place, text);
      else if (text !== piece.text) replace(piece.place, text);
      piece.text = answer.ok ? text : null;
      piece.has = version;
    } catch {
      lost("The server does not answer; this page may be out of date.");
      piece.wanted = piece.has;  // until it is looked for again, in seconds
    }
    piece.busy = false;
    drawNext();
  };

  const isDue = (piece) => {
    if (piece.busy || piece.has === piece.wanted) return false;
    if (piece.text === null) return true;
    // What a reader has chosen by brushing stays until it is let go.
    return piece.seen && !piece.place.querySelector(".brushed button:not([hidden])");
  };

  const drawNext = () => {
    let free = AT_ONCE - pieces.filter((piece) => piece.busy).length;
    const bySight = [...pieces].sort((one, other) => other.seen - one.seen);  // what is seen first
    for (const piece of bySight) {
      if (isDue(piece) && free > 0) {
        free -= 1;
        draw(piece);
      }
    }
    if (first && pieces.every((piece) => piece.text !== null)) {
      first = false;  // told to whoever measures, once it is to be seen
      requestAnimationFrame(() => setTimeout(() => {
        document.body.dataset.drawn = Math.ceil(performance.now());
      }));
    }
  };

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      pieces.find((piece) => piece.place === entry.target).seen = entry.isIntersecting;
    }
    drawNext();
  }, { rootMargin: "300px" });
  for (const piece of pieces) watcher.observe(piece.place);

  // ------------------------------------------------------------ has anything changed?

  let timer = 0;
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden) return;  // a page that nobody sees costs nothing
    let rest = RESTING;
    for (const study of studies) {
      try {
        const answer = await fetch(study === "" ? "/states" : way("state", study));
        const date = Date.parse(answer.headers.get("Date")) - Date.now();
        skew = Math.abs(date) > 5000 ? date : 0;
        if (!answer.ok) {
          lost(answer.status === 404 ? `${study} is gone.` : await answer.text());
          continue;
        }
        const told = await answer.json();
        lost("");
        versions.set(study, told.version);
        const soon = { running: RUNNING, reading: SOON }[told.state] ?? RESTING;
        rest = Math.min(rest, soon);
      } catch {
        lost("The server does not answer; this page may be out of date.");
        rest = RUNNING;
      }
    }
    for (const piece of pieces) {
      piece.wanted = versions.get(piece.study) ?? piece.wanted;
    }
    drawNext();
    timer = setTimeout(look, rest);
  };
  document.addEventListener("visibilitychange", look);

  // ------------------------------------------------------------ times, what is asked for

  const ago = (seconds) => {
    if (seconds < 60) return `${Math.round(seconds)} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
    return `${Math.floor(seconds / 86400)} days ago`;
  };
  const age = () => {
    for (const time of document.querySelectorAll("time[data-at]")) {
      if (time.title === "") time.title = time.textContent;
      time.textContent = ago(Math.max(0, (Date.now() + skew) / 1000 - Number(time.dataset.at)));
    }
  };
  setInterval(() => { if (!document.hidden) age(); }, 1000);

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.ask");
    if (!button) return;
    const { study, part } = button.dataset;
    const place = button.closest(".asked");
    say(place, "Computing ...");
    try {
      const answer = await fetch(way("part", study, part));
      const text = await answer.text();
      if (answer.ok) fill(place, text);
      else say(place, text);
    } catch {
      say(place, "The server does not answer.");
    }
    button.textContent = "Compute it again";
    const line = document.createElement("p");
    line.append(button);
    place.append(line);
  });

  look();
})();
