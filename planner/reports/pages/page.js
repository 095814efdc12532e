"use strict";
(() => {
  const config = { displayModeBar: false, responsive: true };
  const isTouched = matchMedia("(pointer: coarse)").matches;
  const isNight = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  const unpacked = async (id) => {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };

  const isDark = () => (root.dataset.scheme ? root.dataset.scheme === "dark" : isNight.matches);
  const recoloured = (value, colours) => {
    if (typeof value === "string") return colours[value] ?? value;
    if (Array.isArray(value)) return value.map((each) => recoloured(each, colours));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, recoloured(each, colours)]));
  };

  const draw = (place, view) => {
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

  const MOST_VALUES = 1000;
  const plain = (text) => new DOMParser().parseFromString(String(text ?? ""), "text/html").body.textContent;
  const number = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : plain(value));
  const named = (axis, value) => {
    const place = axis?.tickvals?.indexOf(value) ?? -1;
    return place < 0 ? number(value) : plain(axis.ticktext[place]);
  };
  const rowsOf = ({ data, layout, rows }) => { // what a chart shows, as rows of text; the first is the heading
    if (rows.length) return rows;
    const [x, y] = [layout.xaxis, layout.yaxis];
    const [first] = data;
    if (first.type === "treemap") return [["", "size"], ...first.labels.map((label, n) => [plain(label), plain(first.text[n])])];
    if (first.type === "heatmap") {
      const text = (row, column) => (first.text ? plain(first.text[row][column]) : number(first.z[row][column]));
      const head = [plain(y.title?.text), ...first.x.map((value) => named(x, value))];
      return [head, ...first.y.map((value, row) => [named(y, value), ...first.x.map((_, column) => text(row, column))])];
    }
    const isAcross = data.some((trace) => trace.orientation === "h");
    const [from, to] = isAcross ? ["y", "x"] : ["x", "y"];
    const keys = [...new Set(data.flatMap((trace) => trace[from]))];
    const column = (trace) => new Map(trace[from].map((key, n) => [key, trace[to][n]]));
    const columns = data.map(column);
    const title = (trace) => (data.length > 1 && plain(trace.name)) || plain((isAcross ? x : y).title?.text);
    return [
      [plain((isAcross ? y : x).title?.text), ...data.map(title)],
      ...keys.map((key) => [named(isAcross ? y : x, key), ...columns.map((values) => number(values.get(key) ?? ""))]),
    ];
  };
  const unitOf = ({ data: [first], layout, rows }) => { // what values are, where no heading says it
    if (rows.length || first.type === "treemap") return "";
    if (first.type === "heatmap") return plain(first.colorbar?.title?.text);
    return plain((first.orientation === "h" ? layout.xaxis : layout.yaxis).title?.text);
  };
  const fill = (table, rows, unit) => {
    table.replaceChildren();
    if (unit) table.createCaption().textContent = unit;
    for (const [n, row] of rows.slice(0, MOST_VALUES + 1).entries()) {
      const line = table.insertRow();
      for (const text of row) line.appendChild(document.createElement(n ? "td" : "th")).textContent = text;
    }
    if (rows.length > MOST_VALUES + 1) table.insertRow().insertCell().textContent = `… ${rows.length - 1 - MOST_VALUES} more`;
  };

  const scheme = document.getElementById("scheme");
  const SCHEMES = { "": "system", light: "light", dark: "dark" };
  const start = async () => {
    if (!document.querySelector(".chart")) return;
    if (!window.DecompressionStream) throw new Error("charts need a browser of 2023 or later");
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script);
    const { views, dark } = JSON.parse(await unpacked("views"));
    for (const place of document.querySelectorAll(".chart")) {
      const choice = document.getElementById(`${place.id}-choice`);
      const values = document.getElementById(`${place.id}-values`);
      const show = () => {
        const view = structuredClone(views[place.id][Number(choice?.value ?? 0)]);
        draw(place, isDark() ? recoloured(view, dark) : view);
        if (values.open) fill(values.querySelector("table"), rowsOf(view), unitOf(view));
      };
      show();
      choice?.addEventListener("change", show);
      values.addEventListener("toggle", show);
      isNight.addEventListener("change", show);
      scheme.addEventListener("click", () => setTimeout(show));
    }
  };
  const label = () => (scheme.textContent = `Colours: ${SCHEMES[root.dataset.scheme ?? ""]}`);
  scheme.hidden = false;
  label();
  scheme.addEventListener("click", () => {
    const names = Object.keys(SCHEMES);
    root.dataset.scheme = names[(names.indexOf(root.dataset.scheme ?? "") + 1) % names.length];
    label();
  });
  start().catch((error) => {
    for (const place of document.querySelectorAll(".chart")) place.textContent = `Not drawn: ${error.message}.`;
  });

  const words = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? words.compare(a, b) : x - y;
  };
  for (const table of document.querySelectorAll("table[id]")) {
    const body = table.tBodies[0];
    table.tHead.addEventListener("click", (event) => {
      const head = event.target.closest("th");
      if (!head) return;
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[head.cellIndex];
        const text = cell.classList.contains("n") ? cell.textContent.replaceAll(",", "") : cell.textContent;
        return [cell.classList.contains("none") ? "" : text, row];
      });
      // what is unknown stays last
      keyed.sort(([a], [b]) => (a === "" || b === "" ? compare(a, b) : sign * compare(a, b)));
      body.append(...keyed.map(([, row]) => row));
    });
  }
})();
