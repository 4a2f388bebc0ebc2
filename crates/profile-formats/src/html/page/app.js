// The page as a whole: what is selected, and what each part shows of it.

/** The views, and what has the focus first in each. */
const FIRST_PARTS = { flame: "flame", sandwich: "callees", ledger: "view-ledger" };

class App {
  constructor(/** @type {Profile} */ profile) {
    this.profile = profile;
    const { functions, timelines, measured } = profile;
    const names = new FittingNames(functions);
    /** The samples of each profile. */
    this.samples = timelines.map(sampleCount);
    /** @type {Reading} */
    this.reading = measured.length > 1 ? new Comparison(functions, names, this.samples) : new Shares(functions, names);
    this.colours = new Colours();
    const [{ spans }] = timelines;
    this.hasTime = spans > 1;
    this.whole = { from: 0, to: spans - 1 };
    this.range = this.whole;
    this.zoomed = 0;
    /** @type {number[]} what was zoomed to before */
    this.before = [];
    /** @type {Search | null} */
    this.search = null;
    /** @type {number | null} the function whose callers and callees are shown */
    this.middle = null;
    this.flame = this.graph("flame", "Flame graph", (node) => this.zoom(node));
    this.callers = this.graph("callers", "Callers", (node) => this.callers.zoom(node));
    this.callees = this.graph("callees", "Callees", (node) => this.callees.zoom(node));
    this.callers.setRootBelow(true);
    this.heatMap = new HeatMap(byId("heat"), {
      timeline: timelines[0],
      colours: this.colours,
      onSelect: (from, to) => this.selectRange({ from, to }),
      onWhole: () => this.selectRange(this.whole),
      onPoint: (text) => this.showSelected(text),
    });
    const table = {
      reading: this.reading,
      onPick: (which) => this.showSandwich(which),
      onShown: (text) => (byId("shown").textContent = text),
    };
    this.table = new FunctionTable(byId("functions"), table, this.isComparison() ? "change" : "self");
  }

  isComparison() {
    return this.profile.measured.length > 1;
  }

  graph(/** @type {string} */ id, label, onZoom) {
    const view = new FlameView(byId(id), {
      label,
      colours: this.colours,
      reading: this.reading,
      onPoint: () => this.showPointed(view),
      onZoom,
    });
    return view;
  }

  start() {
    const { measured, timelines, firstRoots } = this.profile;
    this.showMeasured(measured, this.samples);
    document.body.classList.toggle("compared", this.isComparison());
    byId("time").hidden = !this.hasTime;
    for (const part of [byId("widths").parentElement, byId("note")]) part.hidden = !this.isComparison();
    byId("hot").textContent = this.isComparison() ? "What changed most" : "Hot functions";
    byId("roots").value = firstRoots;
    byId("legend").replaceChildren(...this.reading.legend());
    showDetails(byId("details"), this.reading, null);
    this.setTheme(null);
    this.listen();
    byId("main").hidden = false;
    this.showTab("flame");
    if (this.hasTime) this.heatMap.show(spanCounts(timelines[0], null));
    this.selectRange(this.whole);
    performance.mark("shown");
  }

  /** What was measured, and what became of it. */
  showMeasured(/** @type {Measured[]} */ measured, /** @type {number[]} */ samples) {
    const title = titleText(measured);
    document.title = title;
    byId("target").replaceChildren(nameElement(title));
    byId("facts").replaceChildren(...factsElements(measured, samples));
    byId("view-ledger").replaceChildren(...ledgerElements(measured));
    byId("message").textContent = emptyTexts(measured, samples);
    byId("message").hidden = byId("message").textContent === "";
  }

  listen() {
    const on = (id, event, action) => byId(id).addEventListener(event, action);
    on("search", "submit", (event) => {
      event.preventDefault();
      this.goToMatch(1);
    });
    on("pattern", "input", () => this.setPattern(byId("pattern").value));
    on("roots", "change", () => this.rebuild());
    on("order", "change", () => this.rebuild());
    on("side", "change", () => this.setSide());
    on("widths", "change", () => this.setWidths());
    on("range", "submit", (event) => event.preventDefault());
    on("from", "change", () => this.selectTyped());
    on("to", "change", () => this.selectTyped());
    on("whole", "click", () => this.selectRange(this.whole));
    on("theme", "click", () => this.setTheme(this.isDark() ? "light" : "dark"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.setTheme(null));
    for (const tab of Object.keys(FIRST_PARTS)) on(`tab-${tab}`, "click", () => this.chooseTab(tab));
    const keys = this.keys();
    listenToKeys(keys);
    const help = /** @type {HTMLDialogElement} */ (byId("keys"));
    fillHelp(help, keys, this.hasTime);
    on("help", "click", () => help.showModal());
  }

  /** @returns {Key[]} */
  keys() {
    const next = (id) => {
      const select = byId(id);
      select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
      this.say(`${select.labels[0].firstChild.textContent.trim()}: ${select.selectedOptions[0].textContent}`);
      select.dispatchEvent(new Event("change"));
    };
    const ofTime = [
      { keys: ["m"], shown: "m", what: "to the heat map", action: () => byId("heat").focus() },
      { keys: ["w"], shown: "w", what: "the whole time", action: () => this.selectRange(this.whole) },
    ];
    const ofTwo = [{ keys: ["b"], shown: "b", what: "widths of both, before or after", action: () => next("widths") }];
    return [
      { keys: ["/"], shown: "/", what: "search", action: () => byId("pattern").focus() },
      { keys: ["n"], shown: "n", what: "next match", action: () => this.goToMatch(1) },
      { keys: ["N", "p"], shown: "N p", what: "match before", action: () => this.goToMatch(-1) },
      { keys: ["Escape", "Backspace"], shown: "Esc ⌫", what: "back to what was shown before", action: () => this.back() },
      { keys: ["0", "Home"], shown: "0 Home", what: "the whole graph", action: () => this.zoom(0) },
      { keys: ["g"], shown: "g", what: "to the graph", action: () => byId(FIRST_PARTS[this.tab]).focus() },
      { keys: ["h"], shown: "h", what: "to the functions", action: () => byId("functions").querySelector("tbody button")?.focus() },
      ...(this.hasTime ? ofTime : []),
      { keys: ["f"], shown: "f", what: "flame graph", action: () => this.goToTab("flame") },
      { keys: ["s"], shown: "s", what: "callers and callees of the box", action: () => this.goToTab("sandwich") },
      { keys: ["l"], shown: "l", what: "ledger", action: () => this.goToTab("ledger") },
      { keys: ["i"], shown: "i", what: "root above or below", action: () => next("side") },
      { keys: ["t"], shown: "t", what: "group by process name, container, process, thread, thread name or nothing", action: () => next("roots") },
      { keys: ["o"], shown: "o", what: "order of siblings", action: () => next("order") },
      ...(this.isComparison() ? ofTwo : []),
      { keys: ["d"], shown: "d", what: "dark or light", action: () => this.setTheme(this.isDark() ? "light" : "dark") },
      { keys: ["?"], shown: "?", what: "these keys", action: () => byId("help").click() },
    ];
  }

  /** Makes the tree anew, and stays where it was zoomed to as far as that is still there. */
  rebuild() {
    const { profile, flame } = this;
    const nodes = selectedNodes(profile, this.range, profile.roots[byId("roots").value]);
    const tree = callTree(nodes, profile.functions, byId("order").value, this.reading.factors());
    const path = flame.tree ? [...pathTo(flame.tree, this.zoomed), this.zoomed].map((node) => flame.tree.function[node]) : [];
    this.before = [];
    this.zoomed = lastWide(tree, followPath(tree, path));
    flame.show(tree, this.zoomed);
    this.showZoomed();
    if (this.tab === "sandwich" && this.middle !== null) this.fillSandwich();
  }

  zoom(/** @type {number} */ node) {
    if (node === this.zoomed) return;
    this.before.push(this.zoomed);
    this.zoomTo(node);
  }

  zoomTo(/** @type {number} */ node) {
    this.zoomed = node;
    this.flame.zoom(node);
    this.showZoomed();
    this.say(`zoomed to ${this.reading.describe(this.flame.tree, node)}`);
  }

  /** What follows from the zoom. */
  showZoomed() {
    const { tree } = this.flame;
    showBreadcrumbs(byId("breadcrumbs"), tree, this.zoomed, this.reading.names, (node) => this.zoom(node));
    const sides = hotFunctions(tree, this.zoomed, this.profile.functions.name.length);
    this.table.show({ sides, of: this.reading.shareOf(tree, this.zoomed) });
    this.showMatched();
  }

  back() {
    if (this.tab !== "flame") {
      const zoomed = [this.callers, this.callees].filter((view) => this.tab === "sandwich" && view.zoomed > 0);
      for (const view of zoomed) view.zoom(0);
      if (zoomed.length === 0) this.goToTab("flame");
    } else if (this.before.length > 0) {
      this.zoomTo(this.before.pop());
    } else if (this.zoomed !== 0) {
      this.zoomTo(0);
    }
  }

  setPattern(/** @type {string} */ pattern) {
    const { functions, tree, timelines } = this.profile;
    this.search = search(functions, pattern);
    for (const part of [this.flame, this.callers, this.callees, this.table]) part.setSearch(this.search);
    if (this.hasTime) this.heatMap.show(spanCounts(timelines[0], this.search && matchedNodes(tree, this.search)));
    this.showMatched();
  }

  showMatched() {
    const { search: found, zoomed } = this;
    const { tree } = this.flame;
    let text = "";
    if (found) {
      const matched = this.reading.matched(matchedSamples(tree, zoomed, found), tree, zoomed);
      const count = found.functions === 1 ? "1 function" : `${NUMBER.format(found.functions)} functions`;
      text = `${matched}, ${count}${found.isText ? ", taken as text" : ""}`;
    }
    byId("matched").textContent = text;
  }

  selectRange({ from, to }) {
    this.range = { from, to };
    const { spanSeconds } = this.profile.timelines[0];
    byId("from").value = (from * spanSeconds).toFixed(2);
    byId("to").value = ((to + 1) * spanSeconds).toFixed(2);
    this.heatMap.mark(from, to);
    this.rebuild();
    const isWhole = from === this.whole.from && to === this.whole.to;
    byId("whole").disabled = isWhole;
    const range = isWhole ? "whole time" : `${secondsText(from * spanSeconds)} to ${secondsText((to + 1) * spanSeconds)}`;
    this.selectedText = `${range}: ${sampleText(this.flame.tree.sides[0].total[0])}`;
    this.showSelected("");
  }

  /** The range in words, and the span that is pointed at. */
  showSelected(/** @type {string} */ pointed) {
    byId("selected").textContent = pointed ? `${this.selectedText} (${pointed})` : this.selectedText;
  }

  selectTyped() {
    const { spanSeconds } = this.profile.timelines[0];
    const typed = (id, other) => (byId(id).value === "" ? other : Number(byId(id).value) / spanSeconds);
    const within = (span) => Math.min(Math.max(Math.round(span), 0), this.whole.to);
    const from = within(Math.floor(typed("from", 0) + 1e-6));
    const to = within(Math.ceil(typed("to", this.whole.to + 1) - 1e-6) - 1);
    this.selectRange({ from: Math.min(from, to), to: Math.max(from, to) });
  }

  chooseTab(/** @type {string} */ tab) {
    const which = tab === "sandwich" ? (this.pointedFunction() ?? this.middle ?? this.table.found()[0]) : undefined;
    if (which === undefined) this.showTab(tab);
    else this.showSandwich(which);
  }

  /** The function of the box that is pointed at, if that is code. */
  pointedFunction() {
    const views = { flame: [this.flame], sandwich: [this.callers, this.callees], ledger: [] }[this.tab];
    const view = views.find((each) => each.pointed() !== null);
    const which = view?.tree?.function[view.pointed()];
    return which < this.profile.functions.count ? which : undefined;
  }

  goToTab(/** @type {string} */ tab) {
    this.chooseTab(tab);
    byId(FIRST_PARTS[this.tab]).focus();
  }

  goToMatch(/** @type {1 | -1} */ step) {
    this.chooseTab("flame");
    this.flame.focusMatch(step);
  }

  showTab(/** @type {string} */ shown) {
    this.tab = shown;
    for (const tab of Object.keys(FIRST_PARTS)) {
      byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === shown));
      byId(`view-${tab}`).hidden = tab !== shown;
    }
    byId("breadcrumbs").hidden = shown !== "flame";
    byId("middle").hidden = shown !== "sandwich";
    this.showPointed(this.flame);
  }

  showSandwich(/** @type {number} */ which) {
    this.middle = which;
    this.table.setPicked(which);
    this.showTab("sandwich");
    this.fillSandwich();
    this.say(`callers and callees of ${this.profile.functions.name[which]}`);
  }

  fillSandwich() {
    const { flame, middle, profile, reading } = this;
    const { functions } = profile;
    const order = byId("order").value;
    const count = functions.name.length;
    const show = (view, nodes) => view.show(callTree(nodes, functions, order, reading.factors()));
    show(this.callers, callerNodes(flame.tree, middle, count));
    show(this.callees, calleeNodes(flame.tree, middle, count));
    const shares = reading.summed(totalsAt(this.callees.tree, 0), totalsAt(flame.tree, 0));
    byId("middle").replaceChildren(nameElement(functions.name[middle]), element("span", {}, shares));
  }

  showPointed(/** @type {FlameView} */ view) {
    const node = view?.pointed() ?? null;
    const all = this.flame?.tree ? totalsAt(this.flame.tree, 0) : [];
    showDetails(byId("details"), this.reading, node === null ? null : { tree: view.tree, node, zoomed: view.zoomed, all });
  }

  setWidths() {
    this.reading.widths = byId("widths").value;
    this.rebuild();
  }

  setSide() {
    this.flame.setRootBelow(byId("side").value === "below");
  }

  isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  /** Takes a theme, or the system's. */
  setTheme(/** @type {"light" | "dark" | null} */ theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    byId("theme").textContent = this.isDark() ? "Light" : "Dark";
    this.colours.readStyle();
    this.reading.readStyle(this.colours.background);
    for (const view of [this.flame, this.callers, this.callees]) view.redraw();
    this.heatMap.draw();
  }

  /** For a screen reader. */
  say(/** @type {string} */ text) {
    byId("spoken").textContent = text;
  }
}

/** The node that a path of functions leads to, or the last one that is there. */
function followPath(/** @type {CallTree} */ tree, /** @type {number[]} */ path) {
  let node = 0;
  for (const which of path.slice(1)) {
    const below = [...childrenOf(tree, node)].find((child) => tree.function[child] === which);
    if (below === undefined) break;
    node = below;
  }
  return node;
}

/** The node itself, or the first above it that can be seen. */
function lastWide(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  let wide = node;
  while (wide > 0 && tree.weight[wide] === 0) wide = tree.parent[wide];
  return wide;
}

/** The samples of a subtree, in each profile. */
function totalsAt(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  return tree.sides.map(({ total }) => total[node]);
}

function sampleCount(/** @type {Timeline} */ { count }) {
  let samples = 0;
  for (let entry = 0; entry < count.length; entry += 1) samples += count[entry];
  return samples;
}

async function start() {
  const message = byId("message");
  try {
    const source = byId("profile");
    const profile = await readProfile(source.textContent);
    source.remove();
    new App(profile).start();
  } catch (error) {
    const isOld = typeof DecompressionStream === "undefined";
    message.textContent = isOld
      ? "This browser is too old for the page: it has no DecompressionStream."
      : `This page cannot be shown: ${error}`;
    message.hidden = false;
    throw error;
  }
}

start();
