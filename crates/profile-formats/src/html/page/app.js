// The application: holds the zoom, time range and search, and updates the parts of the page.

/** The tabs, and the id of the element that gets the focus in each. */
const FOCUS_TARGETS = { flame: "flame", sandwich: "callees", lanes: "lanes", ledger: "view-ledger" };

class App {
  constructor(/** @type {Profile} */ profile) {
    this.profile = profile;
    const { functions, timelines, measurements } = profile;
    const names = new NameShortener(functions);
    /** The samples of each profile. */
    this.sampleCounts = timelines.map(countSamples);
    /** @type {Presenter} */
    this.presenter =
      measurements.length > 1
        ? new DifferencePresenter(
            functions,
            names,
            this.sampleCounts,
            measurements.map((measurement) => measurement.effective_samples),
          )
        : new ProfilePresenter(functions, names);
    this.colours = new ThemeColours(profile.states);
    const [{ spans }] = timelines;
    this.hasTime = spans > 1;
    this.wholeRange = { from: 0, to: spans - 1 };
    this.range = this.wholeRange;
    /** @type {StateChoice} */
    this.stateChoice = ALL_STATES;
    this.eventIndex = profile.initialEvent;
    this.zoomed = 0;
    /** @type {number[]} the nodes that the graph was zoomed to before */
    this.zoomHistory = [];
    /** @type {SearchResult | null} */
    this.search = null;
    /** @type {number | null} the function whose callers and callees are shown */
    this.sandwichFunction = null;
    this.flame = this.createFlameView("flame", "Flame graph", (node) => this.zoom(node));
    this.callers = this.createFlameView("callers", "Callers", (node) => this.callers.zoom(node));
    this.callees = this.createFlameView("callees", "Callees", (node) => this.callees.zoom(node));
    this.callers.setRootBelow(true);
    this.heatMap = new HeatMap(getElement("heat"), {
      timeline: timelines[0],
      colours: this.colours,
      onSelect: (from, to) => this.selectRange({ from, to }),
      onReset: () => this.selectRange(this.wholeRange),
      onPoint: (text) => this.showSelected(text),
    });
    this.lanes = profile.lanes && this.createLanesView(profile.lanes);
    const tableOptions = {
      presenter: this.presenter,
      onSelectFunction: (functionIndex) => this.showSandwich(functionIndex),
      onCount: (text) => (getElement("shown").textContent = text),
    };
    this.functionTable = new FunctionTable(
      getElement("functions"),
      tableOptions,
      this.isDifference() ? "change" : "self",
    );
  }

  isDifference() {
    return this.profile.measurements.length > 1;
  }

  createFlameView(/** @type {string} */ id, label, onZoom) {
    const view = new FlameView(getElement(id), {
      label,
      colours: this.colours,
      presenter: this.presenter,
      onPoint: () => this.showBoxDetails(view),
      onZoom,
    });
    return view;
  }

  createLanesView(/** @type {Lanes} */ lanes) {
    return new LanesView(getElement("lanes"), {
      lanes,
      colours: this.colours,
      onPoint: (run) => (getElement("lane").textContent = run === null ? "" : this.describeRun(run)),
      onSelect: (run) => this.showRun(run),
    });
  }

  /** Describes a run: thread, state, begin, end and length. */
  describeRun(/** @type {number} */ run) {
    const { lanes, states } = this.profile;
    const [start, end] = [lanes.start[run], lanes.end[run]].map((time) => time * lanes.unitSeconds);
    const length = formatDuration((end - start) * 1e9);
    return `${lanes.getName(run)}: ${STATES[states[lanes.state[run]]]} for ${length}, ${formatSeconds(start)} to ${formatSeconds(end)}`;
  }

  /** Shows the stack of a run, with the way to it in the flame graph. */
  showRun(/** @type {number} */ run) {
    const { tree, functions, lanes } = this.profile;
    const path = listFunctionsTo(tree, lanes.node[run]);
    const button = createElement("button", { type: "button", onclick: () => this.zoomToRun(run, path) }, "In the flame graph");
    const items = path.toReversed().map((index) => createElement("li", {}, createNameElement(functions.name[index])));
    const title = createElement("p", {}, createNameElement(this.describeRun(run)), " ", button);
    getElement("lane-stack").replaceChildren(title, createElement("ol", {}, ...items));
    this.announce(`${this.describeRun(run)}, in ${functions.name[path.at(-1)] ?? "no function"}`);
  }

  zoomToRun(/** @type {number} */ run, /** @type {number[]} */ path) {
    const { lanes, functions, rootsByGrouping } = this.profile;
    const root = rootsByGrouping[getElement("roots").value][lanes.thread[run]];
    const node = followPath(this.flame.tree, [functions.root, ...(root < 0 ? [] : [root]), ...path]);
    this.goToTab("flame");
    this.zoom(findVisibleAncestor(this.flame.tree, node));
  }

  start() {
    const { measurements, initialGrouping } = this.profile;
    this.showHeader(measurements, this.sampleCounts);
    document.body.classList.toggle("compared", this.isDifference());
    getElement("time").hidden = !this.hasTime;
    for (const part of [getElement("widths").parentElement, getElement("note")]) part.hidden = !this.isDifference();
    getElement("hot").textContent = this.isDifference() ? "Largest changes" : "Hot functions";
    getElement("roots").value = initialGrouping;
    showDetails(getElement("details"), this.presenter, null);
    this.setTheme(null);
    this.fillEventChoice();
    this.fillStateChoice();
    getElement("tab-lanes").hidden = this.lanes === null;
    this.addListeners();
    getElement("main").hidden = false;
    this.showTab("flame");
    setValuesAreTimes(measurements[0].unit_ns > 0);
    this.showHeat();
    this.selectRange(this.wholeRange);
    performance.mark("shown");
  }

  fillEventChoice() {
    const { events } = this.profile;
    const createOption = ({ measurements: [{ event }] }, index) => createElement("option", { value: index }, event);
    getElement("event").replaceChildren(...events.map(createOption));
    getElement("event").selectedIndex = this.eventIndex;
    getElement("event").parentElement.hidden = events.length === 1;
  }

  /** Offers the states of the selected event's samples. */
  fillStateChoice() {
    const { timelines, states } = this.profile;
    const choices = timelines.length > 1 ? [ALL_STATES] : listStateChoices(timelines[0], states);
    const createOption = ({ name }) => createElement("option", { value: name }, name);
    getElement("state").replaceChildren(...choices.map(createOption));
    getElement("state").parentElement.hidden = choices.length === 1;
    this.stateChoices = choices;
    this.stateChoice = ALL_STATES;
  }

  /** Shows the samples of some states in all parts of the page. */
  showStates(/** @type {StateChoice} */ choice) {
    this.stateChoice = choice;
    this.showHeat();
    this.selectRange(this.range);
  }

  /** Which runs of the lanes are of the selected event; null if it has none. */
  getRunFilter() {
    const { lanes, measurements } = this.profile;
    return lanes?.event === this.eventIndex ? getRunFilter(lanes, measurements[0]) : null;
  }

  showHeat() {
    if (!this.hasTime) return;
    const { timelines, lanes, tree } = this.profile;
    const marked = this.search && markMatchedNodes(tree, this.search);
    const { mask, state } = this.stateChoice;
    const isOfEvent = this.getRunFilter();
    const counts = isOfEvent
      ? sumRunsBySpan(lanes, isOfEvent, timelines[0], mask, marked)
      : countSamplesBySpan(timelines[0], mask, marked);
    this.heatMap.show(counts, state);
  }

  /** The timelines and the part of them that is shown. Runs are cut at the ends of the selected range. */
  selectSamples() {
    const { profile, range, wholeRange } = this;
    const states = this.stateChoice.mask;
    const isWhole = range.from === wholeRange.from && range.to === wholeRange.to;
    const isOfEvent = this.getRunFilter();
    if (isWhole || !isOfEvent) return { profile, selection: { ...range, states } };
    const timelines = [cutRuns(profile.lanes, isOfEvent, profile.timelines[0], range)];
    return { profile: { ...profile, timelines }, selection: { from: 0, to: 0, states } };
  }

  /** Shows the samples of another event in all parts of the page. */
  showEvent(/** @type {number} */ index) {
    const { profile } = this;
    Object.assign(profile, profile.events[index]);
    this.eventIndex = index;
    setValuesAreTimes(profile.measurements[0].unit_ns > 0);
    this.sampleCounts = profile.timelines.map(countSamples);
    this.showHeader(profile.measurements, this.sampleCounts);
    this.heatMap.setTimeline(profile.timelines[0]);
    this.fillStateChoice();
    this.setPattern(getElement("pattern").value);
    this.selectRange(this.range);
  }

  showHeader(/** @type {Measurement[]} */ measurements, /** @type {number[]} */ samples) {
    const title = formatTitle(measurements);
    document.title = title;
    getElement("target").replaceChildren(createNameElement(title));
    getElement("facts").replaceChildren(...createFacts(measurements, samples));
    showFindings(measurements);
    getElement("view-ledger").replaceChildren(...createLedgers(measurements));
    getElement("message").textContent = explainEmptyProfiles(measurements, samples);
    getElement("message").hidden = getElement("message").textContent === "";
  }

  addListeners() {
    const on = (id, event, action) => getElement(id).addEventListener(event, action);
    on("search", "submit", (event) => {
      event.preventDefault();
      this.goToMatch(1);
    });
    on("pattern", "input", () => this.setPattern(getElement("pattern").value));
    on("event", "change", () => this.showEvent(getElement("event").selectedIndex));
    on("state", "change", () => this.showStates(this.stateChoices[getElement("state").selectedIndex]));
    on("roots", "change", () => this.rebuildTree());
    on("order", "change", () => this.rebuildTree());
    on("side", "change", () => this.setRootSide());
    on("widths", "change", () => this.setWidths());
    on("range", "submit", (event) => event.preventDefault());
    on("from", "change", () => this.selectTypedRange());
    on("to", "change", () => this.selectTypedRange());
    on("whole", "click", () => this.selectRange(this.wholeRange));
    on("theme", "click", () => this.setTheme(this.isDark() ? "light" : "dark"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.setTheme(null));
    for (const tab of Object.keys(FOCUS_TARGETS)) on(`tab-${tab}`, "click", () => this.chooseTab(tab));
    const keys = this.createKeys();
    listenToKeys(keys);
    const dialog = /** @type {HTMLDialogElement} */ (getElement("keys"));
    fillHelp(dialog, keys, this.hasTime);
    on("help", "click", () => dialog.showModal());
  }

  /** @returns {Key[]} */
  createKeys() {
    const selectNext = (id) => {
      const select = getElement(id);
      select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
      this.announce(`${select.labels[0].firstChild.textContent.trim()}: ${select.selectedOptions[0].textContent}`);
      select.dispatchEvent(new Event("change"));
    };
    const timeKeys = [
      { keys: ["m"], label: "m", help: "focus the heat map", action: () => getElement("heat").focus() },
      {
        keys: ["w"],
        label: "w",
        help: "select the whole time",
        action: () => this.selectRange(this.wholeRange),
      },
    ];
    const eventKeys = [{ keys: ["e"], label: "e", help: "show the next event", action: () => selectNext("event") }];
    const stateKeys = [
      { keys: ["r"], label: "r", help: "threads over time", action: () => this.goToTab("lanes") },
      { keys: ["c"], label: "c", help: "show the next state", action: () => selectNext("state") },
    ];
    const differenceKeys = [
      { keys: ["b"], label: "b", help: "widths of both, before or after", action: () => selectNext("widths") },
    ];
    return [
      { keys: ["/"], label: "/", help: "search", action: () => getElement("pattern").focus() },
      { keys: ["n"], label: "n", help: "next match", action: () => this.goToMatch(1) },
      { keys: ["N", "p"], label: "N p", help: "previous match", action: () => this.goToMatch(-1) },
      {
        keys: ["Escape", "Backspace"],
        label: "Esc ⌫",
        help: "back to the previous view",
        action: () => this.goBack(),
      },
      { keys: ["0", "Home"], label: "0 Home", help: "show the whole graph", action: () => this.zoom(0) },
      {
        keys: ["g"],
        label: "g",
        help: "focus the graph",
        action: () => getElement(FOCUS_TARGETS[this.tab]).focus(),
      },
      {
        keys: ["h"],
        label: "h",
        help: "focus the function table",
        action: () => getElement("functions").querySelector("tbody button")?.focus(),
      },
      ...(this.hasTime ? timeKeys : []),
      { keys: ["f"], label: "f", help: "flame graph", action: () => this.goToTab("flame") },
      {
        keys: ["s"],
        label: "s",
        help: "callers and callees of the box",
        action: () => this.goToTab("sandwich"),
      },
      { keys: ["l"], label: "l", help: "ledger", action: () => this.goToTab("ledger") },
      { keys: ["i"], label: "i", help: "show the root above or below", action: () => selectNext("side") },
      {
        keys: ["t"],
        label: "t",
        help: "group by process name, container, process, thread, thread name or nothing",
        action: () => selectNext("roots"),
      },
      { keys: ["o"], label: "o", help: "change the order of siblings", action: () => selectNext("order") },
      ...(this.profile.events.length > 1 ? eventKeys : []),
      ...(this.lanes ? stateKeys : []),
      ...(this.isDifference() ? differenceKeys : []),
      {
        keys: ["d"],
        label: "d",
        help: "switch between dark and light",
        action: () => this.setTheme(this.isDark() ? "light" : "dark"),
      },
      { keys: ["?"], label: "?", help: "show these keys", action: () => getElement("help").click() },
    ];
  }

  /** Builds the call tree again and keeps the zoom, or the nearest ancestor that the new tree contains. */
  rebuildTree() {
    const { flame } = this;
    const { profile, selection } = this.selectSamples();
    const nodes = collectSelectedStacks(profile, selection, profile.rootsByGrouping[getElement("roots").value]);
    const tree = buildCallTree(nodes, profile.functions, getElement("order").value, this.presenter.getSampleWeights());
    const path = flame.tree
      ? [...listAncestors(flame.tree, this.zoomed), this.zoomed].map((node) => flame.tree.function[node])
      : [];
    this.zoomHistory = [];
    this.zoomed = findVisibleAncestor(tree, followPath(tree, path));
    flame.show(tree, this.zoomed);
    this.showZoomed();
    if (this.tab === "sandwich" && this.sandwichFunction !== null) this.fillSandwich();
  }

  zoom(/** @type {number} */ node) {
    if (node === this.zoomed) return;
    this.zoomHistory.push(this.zoomed);
    this.zoomTo(node);
  }

  zoomTo(/** @type {number} */ node) {
    this.zoomed = node;
    this.flame.zoom(node);
    this.showZoomed();
    this.announce(`zoomed to ${this.presenter.describeBox(this.flame.tree, node)}`);
  }

  /** Updates the parts of the page that depend on the zoom. */
  showZoomed() {
    const { tree } = this.flame;
    showBreadcrumbs(getElement("breadcrumbs"), tree, this.zoomed, this.presenter.names, (node) => this.zoom(node));
    const sides = countFunctionSamples(tree, this.zoomed, this.profile.functions.name.length);
    this.functionTable.show({ sides, totals: this.presenter.getTableTotals(tree, this.zoomed) });
    this.showMatched();
  }

  goBack() {
    if (this.tab !== "flame") {
      const zoomed = [this.callers, this.callees].filter((view) => this.tab === "sandwich" && view.zoomed > 0);
      for (const view of zoomed) view.zoom(0);
      if (zoomed.length === 0) this.goToTab("flame");
    } else if (this.zoomHistory.length > 0) {
      this.zoomTo(this.zoomHistory.pop());
    } else if (this.zoomed !== 0) {
      this.zoomTo(0);
    }
  }

  setPattern(/** @type {string} */ pattern) {
    this.search = searchFunctions(this.profile.functions, pattern);
    for (const part of [this.flame, this.callers, this.callees, this.functionTable]) part.setSearch(this.search);
    this.showHeat();
    this.showMatched();
  }

  showMatched() {
    const { search: result, zoomed } = this;
    const { tree } = this.flame;
    let text = "";
    if (result) {
      const matched = this.presenter.describeMatches(countMatchedSamples(tree, zoomed, result), tree, zoomed);
      const count =
        result.functionCount === 1 ? "1 function" : `${NUMBER_FORMAT.format(result.functionCount)} functions`;
      text = `${matched}, ${count}${result.isLiteral ? ", taken as text" : ""}`;
    }
    getElement("matched").textContent = text;
  }

  selectRange({ from, to }) {
    this.range = { from, to };
    const { spanSeconds } = this.profile.timelines[0];
    getElement("from").value = (from * spanSeconds).toFixed(2);
    getElement("to").value = ((to + 1) * spanSeconds).toFixed(2);
    this.heatMap.markRange(from, to);
    this.lanes?.show(from * spanSeconds, (to + 1) * spanSeconds);
    this.rebuildTree();
    const isWhole = from === this.wholeRange.from && to === this.wholeRange.to;
    getElement("whole").disabled = isWhole;
    const range = isWhole
      ? "whole time"
      : `${formatSeconds(from * spanSeconds)} to ${formatSeconds((to + 1) * spanSeconds)}`;
    this.selectedText = `${range}: ${formatValueAndUnit(this.flame.tree.sides[0].total[0])}`;
    this.showSelected("");
  }

  /** Shows the selected range and the span at the pointer. */
  showSelected(/** @type {string} */ pointed) {
    getElement("selected").textContent = pointed ? `${this.selectedText} (${pointed})` : this.selectedText;
  }

  selectTypedRange() {
    const { spanSeconds } = this.profile.timelines[0];
    const readSpan = (id, other) => (getElement(id).value === "" ? other : Number(getElement(id).value) / spanSeconds);
    const clampSpan = (span) => Math.min(Math.max(Math.round(span), 0), this.wholeRange.to);
    const from = clampSpan(Math.floor(readSpan("from", 0) + 1e-6));
    const to = clampSpan(Math.ceil(readSpan("to", this.wholeRange.to + 1) - 1e-6) - 1);
    this.selectRange({ from: Math.min(from, to), to: Math.max(from, to) });
  }

  chooseTab(/** @type {string} */ tab) {
    const functionIndex =
      tab === "sandwich"
        ? (this.getPointedFunction() ?? this.sandwichFunction ?? this.functionTable.listFunctions()[0])
        : undefined;
    if (functionIndex === undefined) this.showTab(tab);
    else this.showSandwich(functionIndex);
  }

  /** Returns the function of the box at the pointer, or undefined for a root. */
  getPointedFunction() {
    const views = { flame: [this.flame], sandwich: [this.callers, this.callees], lanes: [], ledger: [] }[this.tab];
    const view = views.find((candidate) => candidate.getPointedNode() !== null);
    const functionIndex = view?.tree?.function[view.getPointedNode()];
    return functionIndex < this.profile.functions.count ? functionIndex : undefined;
  }

  goToTab(/** @type {string} */ tab) {
    this.chooseTab(tab);
    getElement(FOCUS_TARGETS[this.tab]).focus();
  }

  goToMatch(/** @type {1 | -1} */ step) {
    this.chooseTab("flame");
    this.flame.focusMatch(step);
  }

  showTab(/** @type {string} */ shown) {
    this.tab = shown;
    for (const tab of Object.keys(FOCUS_TARGETS)) {
      getElement(`tab-${tab}`).setAttribute("aria-selected", String(tab === shown));
      getElement(`view-${tab}`).hidden = tab !== shown;
    }
    getElement("breadcrumbs").hidden = shown !== "flame";
    getElement("middle").hidden = shown !== "sandwich";
    getElement("details").hidden = shown === "lanes";
    const legend = shown === "lanes" ? createStateLegend(this.profile) : this.presenter.createLegend();
    getElement("legend").replaceChildren(...legend);
    if (shown === "lanes") this.lanes.draw();
    this.showBoxDetails(this.flame);
  }

  showSandwich(/** @type {number} */ functionIndex) {
    this.sandwichFunction = functionIndex;
    this.functionTable.setSelectedFunction(functionIndex);
    this.showTab("sandwich");
    this.fillSandwich();
    this.announce(`callers and callees of ${this.profile.functions.name[functionIndex]}`);
  }

  fillSandwich() {
    const { flame, sandwichFunction, profile, presenter } = this;
    const { functions } = profile;
    const order = getElement("order").value;
    const count = functions.name.length;
    const show = (view, nodes) => view.show(buildCallTree(nodes, functions, order, presenter.getSampleWeights()));
    show(this.callers, mergeCallers(flame.tree, sandwichFunction, count));
    show(this.callees, mergeCallees(flame.tree, sandwichFunction, count));
    const shares = presenter.describeSamples(getTotals(this.callees.tree, 0), getTotals(flame.tree, 0));
    getElement("middle").replaceChildren(
      createNameElement(functions.name[sandwichFunction]),
      createElement("span", {}, shares),
    );
  }

  showBoxDetails(/** @type {FlameView} */ view) {
    const node = view?.getPointedNode() ?? null;
    const totals = this.flame?.tree ? getTotals(this.flame.tree, 0) : [];
    showDetails(
      getElement("details"),
      this.presenter,
      node === null ? null : { tree: view.tree, node, zoomed: view.zoomed, totals },
    );
  }

  setWidths() {
    this.presenter.widths = getElement("widths").value;
    this.rebuildTree();
  }

  setRootSide() {
    this.flame.setRootBelow(getElement("side").value === "below");
  }

  isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  /** Sets a theme; null keeps the current one, by default that of the system. */
  setTheme(/** @type {"light" | "dark" | null} */ theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    getElement("theme").textContent = this.isDark() ? "Light" : "Dark";
    this.colours.readStyleColours();
    this.presenter.readStyleColours(this.colours.background);
    for (const view of [this.flame, this.callers, this.callees]) view.redraw();
    this.heatMap.draw();
    this.lanes?.draw();
  }

  /** Sends a text to screen readers. */
  announce(/** @type {string} */ text) {
    getElement("spoken").textContent = text;
  }
}

/** Follows a path of functions from the root to the last node that the tree contains. */
function followPath(/** @type {CallTree} */ tree, /** @type {number[]} */ path) {
  let node = 0;
  for (const functionIndex of path.slice(1)) {
    const below = [...listChildren(tree, node)].find((child) => tree.function[child] === functionIndex);
    if (below === undefined) break;
    node = below;
  }
  return node;
}

/** Finds the node itself or its nearest ancestor that has a width. */
function findVisibleAncestor(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  let visible = node;
  while (visible > 0 && tree.weight[visible] === 0) visible = tree.parent[visible];
  return visible;
}

/** Returns the samples of a subtree in each profile. */
function getTotals(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  return tree.sides.map(({ total }) => total[node]);
}

function countSamples(/** @type {Timeline} */ { count }) {
  let samples = 0;
  for (let entry = 0; entry < count.length; entry += 1) samples += count[entry];
  return samples;
}

async function startPage() {
  const message = getElement("message");
  try {
    const source = getElement("profile");
    const profile = await readProfile(source.textContent);
    source.remove();
    new App(profile).start();
  } catch (error) {
    const isUnsupported = typeof DecompressionStream === "undefined";
    message.textContent = isUnsupported
      ? "This browser is too old for the page: it has no DecompressionStream."
      : `This page cannot be shown: ${error}`;
    message.hidden = false;
    throw error;
  }
}

startPage();
