"use strict";
(() => {
  const config = { displayModeBar: false, responsive: true };
  const isTouched = matchMedia("(pointer: coarse)").matches;

  for (const place of document.querySelectorAll(".chart")) {
    const views = JSON.parse(document.getElementById(`${place.id}-views`).textContent);
    const choice = document.getElementById(`${place.id}-choice`);
    const draw = (number) => {
      const view = structuredClone(views[number]);
      if (place.clientWidth < 600) {
        view.layout.font.size = 11;
        for (const trace of view.data) if (trace.mode) trace.mode = trace.mode.replace("+text", ""); // no room for names
      }
      const cells = view.data.find((trace) => trace.texttemplate);
      if (cells) {
        const names = Math.max(...view.layout.yaxis.ticktext.map((text) => text.length));
        const wanted = 80 + 7 * names + 40 * cells.x.length; // px, for each text in its cell
        if (wanted > place.clientWidth) view.layout.width = wanted;
      }
      if (isTouched) view.layout.dragmode = false; // a finger scrolls the page
      place.style.height = `${view.layout.height}px`;
      Plotly.react(place, view.data, view.layout, config).then(() => {
        const legend = place.querySelector("g.legend .bg");
        const more = legend && place.clientWidth < 600 ? legend.getBBox().height : 0; // it takes more lines there
        if (more < 30) return;
        place.style.height = `${view.layout.height + more}px`;
        Plotly.relayout(place, { height: view.layout.height + more });
      });
    };
    draw(0);
    if (choice) choice.addEventListener("change", () => draw(Number(choice.value)));
  }

  const words = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? words.compare(a, b) : x - y;
  };
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    table.tHead.addEventListener("click", (event) => {
      const head = event.target.closest("th");
      if (!head) return;
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[head.cellIndex];
        return [cell.classList.contains("none") ? "" : cell.dataset.v ?? cell.textContent, row];
      });
      // what is unknown stays last
      keyed.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b) : sign * compare(a, b)));
      body.append(...keyed.map(([, row]) => row));
    });
  }
})();
