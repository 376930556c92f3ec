"use strict";
// Tables sort by their heads and say that they go on; marks tell what they are; a trial is lit
// everywhere it is drawn; parts of the rails of parallel coordinates are chosen by brushing.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const texts = new WeakMap();
  const textOf = (mark) => {  // what the browser itself would tell, which is taken from it
    const title = mark instanceof SVGElement ? mark.querySelector(":scope > title") : null;
    if (title) {
      texts.set(mark, title.textContent);
      title.remove();
    }
    return texts.get(mark);
  };

  const place = (event) => {
    const box = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
    const below = event.clientY + 18;
    const y = below + box.height > innerHeight ? event.clientY - box.height - 12 : below;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, y) + "px";
  };

  let lit = null;
  const light = (trial) => {
    if (trial === lit) return;
    for (const node of document.querySelectorAll(".lit")) node.classList.remove("lit");
    lit = trial;
    if (trial === null) return;
    for (const node of document.querySelectorAll(`[data-t="${trial}"]`)) node.classList.add("lit");
  };

  document.addEventListener("pointerover", (event) => {
    const text = textOf(event.target);
    tip.hidden = text === undefined;
    if (text !== undefined) {
      tip.textContent = text;
      place(event);
    }
    const owner = event.target.closest("[data-t]");
    light(owner ? owner.dataset.t : null);
  });
  document.addEventListener("pointermove", (event) => {
    if (!tip.hidden) place(event);
  });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  const sort = (head) => {
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const key = (row) => {
      const cell = row.cells[column];
      if (cell.dataset.s !== undefined) return Number(cell.dataset.s);
      return cell.textContent === "" ? null : cell.textContent;
    };
    const compare = (a, b) => {
      if (a === null || b === null) return (a === null) - (b === null);  // empty ones come last
      const order = typeof a === "number" && typeof b === "number"
        ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort((a, b) => compare(a[0], b[0]));
    body.append(...rows.map((pair) => pair[1]));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (button) sort(button.closest("th"));
  });

  // -------------------------------------------------------------------- tables that go on

  const goesOn = (box) => {
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    box.before(more);
    const look = () => {
      const edge = box.getBoundingClientRect().right;
      const heads = [...box.querySelectorAll("thead th")];
      const count = heads.filter((head) => head.getBoundingClientRect().right > edge + 2).length;
      const overflows = box.scrollWidth > box.clientWidth + 1;
      more.hidden = !overflows;
      more.textContent = count ? `${count} more column${count > 1 ? "s" : ""} \u2192`
        : "\u2190 back to the first columns";
    };
    more.addEventListener("click", () => {
      const last = box.scrollLeft + box.clientWidth >= box.scrollWidth - 2;
      box.scrollLeft = last ? 0 : box.scrollLeft + 0.8 * box.clientWidth;
    });
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
    look();
  };

  // -------------------------------------------------------------------- brushing

  const step = 0.05;
  const brushing = (figure) => {
    const chosen = new Map();  // rail -> [low, high], as shares of it
    const groups = [...figure.querySelectorAll(".brush")];
    const strands = [...figure.querySelectorAll(".strand")].map(
      (path) => [path, path.dataset.c.split(" ").map(Number)]);
    const bar = document.createElement("div");
    bar.className = "brushed";
    const said = document.createElement("span");
    said.setAttribute("role", "status");
    const clear = document.createElement("button");
    clear.type = "button";
    clear.textContent = "show all";
    bar.append(said, clear);
    (figure.querySelector(".legend") || figure.firstChild).after(bar);

    const near = (group, share) => {
      let best = ["", 2];
      for (const [at, text] of JSON.parse(group.dataset.ticks)) {
        if (Math.abs(at - share) < best[1]) best = [text, Math.abs(at - share)];
      }
      return best[1] < 0.04 ? best[0] : `${Math.round(100 * share)}% of the axis`;
    };
    const words = (group) => {
      const range = chosen.get(group.dataset.rail);
      return range ? `${near(group, range[0])} to ${near(group, range[1])}` : "all";
    };
    const draw = () => {
      for (const group of groups) {
        const range = chosen.get(group.dataset.rail);
        group.querySelector(".range")?.remove();
        group.setAttribute("aria-valuetext", words(group));
        group.setAttribute("aria-valuenow", range ? Math.round(50 * (range[0] + range[1])) : 50);
        if (!range) continue;
        const [x1, y1, x2, y2] = group.dataset.line.split(" ").map(Number);
        const box = document.createElementNS(group.namespaceURI, "rect");
        const [a, b] = range;
        box.setAttribute("class", "range");
        box.setAttribute("x", x1 === x2 ? x1 - 6 : x1 + a * (x2 - x1));
        box.setAttribute("y", y1 === y2 ? y1 - 6 : y1 + b * (y2 - y1));
        box.setAttribute("width", x1 === x2 ? 12 : Math.max(2, (b - a) * (x2 - x1)));
        box.setAttribute("height", y1 === y2 ? 12 : Math.max(2, (a - b) * (y2 - y1)));
        group.append(box);
      }
      const shown = new Set();
      const every = new Set();
      for (const [path, shares] of strands) {
        const stays = [...chosen].every(
          ([rail, [low, high]]) => shares[rail] >= low - 1e-6 && shares[rail] <= high + 1e-6);
        path.classList.toggle("away", !stays);
        every.add(path.dataset.t);
        if (stays) shown.add(path.dataset.t);
      }
      clear.hidden = chosen.size === 0;
      said.textContent = chosen.size
        ? `${shown.size} of ${every.size} trials`
        : "Drag along an axis, or press arrow keys on it, to choose a part of it.";
    };
    const choose = (rail, low, high) => {
      const a = Math.max(0, Math.min(low, high));
      const b = Math.min(1, Math.max(low, high));
      if (a <= 0 && b >= 1) chosen.delete(rail);
      else chosen.set(rail, [a, b]);
      draw();
    };
    clear.addEventListener("click", () => { chosen.clear(); draw(); groups[0].focus?.(); });

    for (const group of groups) {
      const rail = group.dataset.rail;
      const name = group.dataset.name;
      const line = group.dataset.line.split(" ").map(Number);
      group.setAttribute("tabindex", "0");
      group.setAttribute("role", "slider");
      group.setAttribute("aria-label", `choose a part of ${name}`);
      group.setAttribute("aria-valuemin", "0");
      group.setAttribute("aria-valuemax", "100");
      const share = (event) => {
        const at = new DOMPoint(event.clientX, event.clientY)
          .matrixTransform(group.getScreenCTM().inverse());
        const [x1, y1, x2, y2] = line;
        const part = x1 === x2 ? (at.y - y1) / (y2 - y1) : (at.x - x1) / (x2 - x1);
        return Math.max(0, Math.min(1, part));
      };
      let from = null;
      group.addEventListener("pointerdown", (event) => {
        from = share(event);
        event.target.setPointerCapture(event.pointerId);
      });
      group.addEventListener("pointermove", (event) => {
        if (from !== null && Math.abs(share(event) - from) > 0.01) choose(rail, from, share(event));
      });
      const ends = (event) => {
        if (from === null) return;
        if (event.type === "pointerup" && Math.abs(share(event) - from) <= 0.01) {
          chosen.delete(rail);  // a click on it takes the choice back
          draw();
        }
        from = null;
      };
      group.addEventListener("pointerup", ends);
      group.addEventListener("pointercancel", ends);
      group.addEventListener("keydown", (event) => {
        const [low, high] = chosen.get(rail) || [0, 1];
        const up = event.key === "ArrowUp" || event.key === "ArrowRight";
        const down = event.key === "ArrowDown" || event.key === "ArrowLeft";
        if (event.key === "Escape") { chosen.delete(rail); draw(); return; }
        if (!up && !down) return;
        event.preventDefault();
        const by = up ? step : -step;
        if (event.shiftKey) choose(rail, low, Math.max(low + step, high + by));
        else if (low === 0 && high === 1) choose(rail, up ? step : 0, up ? 1 : 1 - step);
        else if (up && high >= 1) choose(rail, Math.min(low + step, 1 - step), 1);
        else if (down && low <= 0) choose(rail, 0, Math.max(high - step, step));
        else choose(rail, low + by, high + by);
      });
    }
    draw();
  };

  // -------------------------------------------------------------------- what is there, and comes

  const adopt = (place) => {
    for (const box of place.querySelectorAll(".scroll")) goesOn(box);
    for (const figure of place.querySelectorAll("figure")) {
      if (figure.querySelector(".brush")) brushing(figure);
    }
  };
  adopt(document);
  document.addEventListener("drawn", (event) => adopt(event.target));  // of a page that lives
})();
