"use strict";
// Tables sort by their heads; marks tell what they are; a trial is lit everywhere it is drawn.
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
})();
