"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const charts = JSON.parse(document.getElementById("data").textContent).charts;
  const live = document.getElementById("live");
  const byId = (id) => document.getElementById(id);
  const make = (name, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const draw = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  for (const element of document.querySelectorAll(".controls, .script-only, .filter")) element.hidden = false;

  // Light and dark. Pages that come from a file may have no storage.
  const root = document.documentElement;
  const theme = byId("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("modifind-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => {
    theme.setAttribute("aria-pressed", String(isDark()));
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", "Dark colours");
  };
  if (["dark", "light"].includes(remembered())) root.dataset.theme = remembered();
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("modifind-theme", root.dataset.theme); } catch { /* not kept */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // The table: sorting by any column, and finding names.
  const body = byId("table").tBodies[0];
  const heads = [...byId("table").tHead.rows[0].cells];
  const sortBy = (place) => {
    const head = heads[place];
    const numeric = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    // First click: small p-values on top, but large effects.
    const first = head.dataset.key === "effect" ? "descending" : "ascending";
    const direction = before === null ? first : before === "ascending" ? "descending" : "ascending";
    const sign = direction === "ascending" ? 1 : -1;
    const key = (row) => row.cells[place].dataset.sort;
    const rows = [...body.rows].sort((one, other) => {
      const a = key(one), b = key(other);
      if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
      return sign * (numeric ? Number(a) - Number(b) : a.localeCompare(b));
    });
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    body.append(...rows);
    live.textContent = `Sorted by ${head.textContent}, ${direction}`;
  };
  heads.forEach((head, place) => {
    const button = make("button", head.textContent);
    button.type = "button";
    button.addEventListener("click", () => sortBy(place));
    head.replaceChildren(button);
  });
  const filter = byId("filter");
  const listed = [...body.rows].map((row) => [row, row.cells[0].dataset.sort]);
  const others = [...document.querySelectorAll("details.panel")].map((panel) =>
    [panel, panel.querySelector(".name").textContent.toLowerCase()]);
  filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    let count = 0;
    for (const [row, name] of listed) {
      row.hidden = !name.includes(wanted);
      count += row.hidden ? 0 : 1;
    }
    for (const [panel, name] of others) panel.hidden = !name.includes(wanted);
    byId("found").textContent = wanted ? `${count} of ${listed.length}` : "";
  });

  // Going to a feature: from the table, the list or the address of the page.
  const pick = byId("pick");
  const show = (place, focus) => {
    const panel = place && byId(place);
    if (!panel || !panel.classList.contains("panel")) return;
    panel.hidden = false;
    panel.open = true;
    pick.value = place;
    panel.scrollIntoView();
    if (focus) panel.firstElementChild.focus({ preventScroll: true });
  };
  const fromAddress = () => show(location.hash.slice(1), true);
  pick.addEventListener("change", () => { if (pick.value) location.hash = pick.value; });
  window.addEventListener("hashchange", fromAddress);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#feature=']");
    if (link && link.getAttribute("href") === location.hash) fromAddress();
  });

  // Figures: the numbers at the place that is pointed at, in all figures along the same values.
  const linked = new Map();
  class Plot {
    constructor(box, said) {
      Object.assign(this, { box, said, at: -1 });
      this.svg = box.querySelector("svg");
      const drawing = box.closest(".drawing");
      this.readout = drawing.querySelector(".readout") || make("p");
      this.readout.className = "readout";
      drawing.append(this.readout);
      this.name = this.svg.getAttribute("aria-label").split(". ")[0];
      box.tabIndex = 0;
      box.setAttribute("role", "slider");
      box.setAttribute("aria-label", `${this.name}. Arrow keys move along it.`);
      box.setAttribute("aria-valuemin", "1");
      box.setAttribute("aria-valuemax", String(said.at.length));
      box.setAttribute("aria-valuenow", "1");
      box.setAttribute("aria-valuetext", this.svg.getAttribute("aria-label"));
      this.vertical = said.axis === "y";
      box.addEventListener("pointermove", (event) => this.point(event));
      box.addEventListener("pointerdown", (event) => this.point(event));
      box.addEventListener("pointerleave", () => { if (document.activeElement !== box) this.all((plot) => plot.clear()); });
      box.addEventListener("focus", () => { if (this.at < 0) this.move(0); });
      box.addEventListener("blur", () => this.all((plot) => plot.clear()));
      box.addEventListener("keydown", (event) => this.key(event));
    }
    all(act) { for (const plot of linked.get(this.said.link)) act(plot); }
    move(at) {
      const place = Math.max(0, Math.min(this.said.at.length - 1, at));
      this.all((plot) => { if (place < plot.said.at.length) plot.mark(place); });
    }
    point(event) {
      const view = this.svg.viewBox.baseVal, size = this.svg.getBoundingClientRect();
      const place = this.vertical
        ? ((event.clientY - size.top) / size.height) * view.height
        : ((event.clientX - size.left) / size.width) * view.width;
      let best = 0;
      this.said.at.forEach((value, k) => { if (Math.abs(value - place) < Math.abs(this.said.at[best] - place)) best = k; });
      this.move(best);
    }
    key(event) {
      const steps = { ArrowRight: 1, ArrowDown: this.vertical ? 1 : -1, ArrowLeft: -1, ArrowUp: this.vertical ? -1 : 1, PageUp: -5, PageDown: 5 };
      const last = this.said.at.length - 1;
      if (event.key in steps) this.move(this.at + steps[event.key]);
      else if (event.key === "Home") this.move(0);
      else if (event.key === "End") this.move(last);
      else if (event.key === "Escape") this.all((plot) => plot.clear());
      else return;
      event.preventDefault();
    }
    mark(at) {
      this.clear();
      this.at = at;
      const [left, top, right, bottom] = this.said.box, place = this.said.at[at];
      const line = this.vertical ? { x1: left, x2: right, y1: place, y2: place } : { x1: place, x2: place, y1: top, y2: bottom };
      this.added = [draw("line", { class: "cross", ...line })];
      for (const mark of this.said.marks[at])
        this.added.push(draw("circle", { class: "spot", r: 3.6, cx: this.vertical ? mark : place, cy: this.vertical ? place : mark }));
      this.svg.append(...this.added);
      const { name, labels, words, texts } = this.said;
      const value = `${name} ${labels[at]}`;
      const text = words ? words.map((word, k) => word + texts[at][k]).join("") : texts[at];
      this.readout.replaceChildren(make("b", value), ` ${text}`);
      this.box.setAttribute("aria-valuenow", String(at + 1));
      this.box.setAttribute("aria-valuetext", `${value}: ${text}`);
    }
    clear() {
      for (const element of this.added || []) element.remove();
      this.added = [];
      this.at = -1;
      this.readout.replaceChildren();
    }
  }
  const ready = (panel) => {
    if (panel.dataset.ready) return;
    panel.dataset.ready = "yes";
    for (const box of panel.querySelectorAll(".plot[id]")) {
      const said = charts[box.id];
      if (!said || !said.at.length) continue;
      const plot = new Plot(box, said);
      linked.set(said.link, [...(linked.get(said.link) || []), plot]);
    }
  };
  addEventListener("beforeprint", () => {
    for (const panel of document.querySelectorAll("details.chosen")) panel.open = true;
  });
  const phone = window.matchMedia("(max-width: 40rem)").matches;
  for (const [panel] of others) {
    if (phone) panel.open = false;
    if (panel.open) ready(panel);
    panel.addEventListener("toggle", () => { if (panel.open) ready(panel); });
  }

  // The methods as text.
  byId("copy").addEventListener("click", async () => {
    const source = byId("methods-text");
    let done = true;
    try { await navigator.clipboard.writeText(source.innerText); }
    catch {
      getSelection().selectAllChildren(source);
      done = document.execCommand("copy");
    }
    byId("copied").textContent = done ? "Copied." : "Select the text and copy it.";
  });

  if (location.hash) fromAddress();
})();
