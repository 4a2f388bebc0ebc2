// The application: holds the zoom, time range and search, and updates the parts of the page.

/** The tabs, and the id of the element that gets the focus in each. */
const FOCUS_TARGETS = { flame: "flame", sandwich: "callees", lanes: "lanes", events: "event-rows", ledger: "view-ledger" };

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
        : new ProfilePresenter(functions, names, profile.states);
    this.colours = new ThemeColours(profile.states);
    const [{ spans }] = timelines;
    this.hasTime = spans > 1;
    this.wholeRange = { from: 0, to: spans - 1 };
    this.range = this.wholeRange;
    /** @type {StateChoice} */
    this.stateChoice = ALL_STATES;
    /** The states of the shown event's samples, if there are several. @type {number[]} */
    this.sampledStates = [];
    this.eventIndex = profile.initialEvent;
    this.zoomed = 0;
    /** @type {number[]} the nodes that the graph was zoomed to before */
    this.zoomHistory = [];
    /** @type {SearchResult | null} */
    this.search = null;
    /** @type {number | null} the function whose callers and callees are shown */
    this.sandwichFunction = null;
    this.flame = this.createFlameView("flame", "Flame graph", (node) => this.zoom(node));
    /** 1 for each thread that is shown; null shows all. @type {Uint8Array | null} */
    this.threadMask = null;
    new FindingsView(measurements, (finding) => selectFinding(this, finding));
    const onSelectFunction = (functionIndex) => this.showSandwich(functionIndex);
    this.sandwich = new SandwichView(this.presenter, {
      createFlameView: (id, label, onZoom) => this.createFlameView(id, label, onZoom),
      onSelectFunction,
    });
    const bands = profile.runtimeEvents && new Bands(profile.runtimeEvents, this.colours);
    const incident = this.hasTime ? readIncident(measurements[0], timelines[0]) : null;
    this.heatMap = new HeatMap(getElement("heat"), {
      timeline: timelines[0],
      colours: this.colours,
      bands,
      incidentSeconds: incident?.seconds ?? null,
      onSelect: (from, to) => this.selectRange({ from, to }),
      onReset: () => this.selectRange(this.wholeRange),
      onPoint: (text) => this.showSelected(text),
    });
    this.incidentView = incident && new IncidentView(incident, {
      presenter: this.presenter,
      onSelectRange: (range) => this.selectRange(range),
      onSelectFunction,
    });
    this.lanes = profile.lanes && this.createLanesView(profile.lanes, bands);
    this.eventView = profile.runtimeEvents && new EventView(profile, {
      onZoom: (thread, path) => this.zoomToStack(thread, path),
      onAnnounce: (text) => this.announce(text),
    });
    const tableOptions = {
      presenter: this.presenter,
      onSelectFunction,
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

  createLanesView(/** @type {Lanes} */ lanes, /** @type {Bands | null} */ bands) {
    const { runtimeEvents: events, threads } = this.profile;
    return new LanesView(getElement("lanes"), {
      lanes,
      colours: this.colours,
      bands,
      marks: events && new LaneMarks(events, lanes, threads, this.colours),
      onPoint: (run, mark) => {
        const parts = [mark === null ? "" : describeEvent(events, mark), run === null ? "" : this.describeRun(run)];
        getElement("lane").textContent = parts.filter(Boolean).join("; ");
      },
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
    const names = path.map((index) => functions.name[index]);
    const onZoom = () => this.zoomToStack(lanes.thread[run], path);
    showStack(getElement("lane-stack"), this.describeRun(run), names, onZoom);
    this.announce(`${this.describeRun(run)}, in ${functions.name[path.at(-1)] ?? "no function"}`);
  }

  zoomToStack(/** @type {number} */ thread, /** @type {number[]} */ path) {
    const { functions, rootsByGrouping } = this.profile;
    const root = rootsByGrouping[getElement("roots").value][thread];
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
    getElement("tab-events").hidden = this.eventView === null;
    this.addListeners();
    getElement("main").hidden = false;
    this.showTab("flame");
    setValuesAreTimes(measurements[0].unit_ns > 0);
    this.showHeat();
    this.selectRange(this.wholeRange);
    this.showIncident();
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
    this.sampledStates = timelines.length > 1 ? [] : listSampledStates(timelines[0], states);
    const choices = listStateChoices(this.sampledStates, states);
    const createOption = ({ name }) => createElement("option", { value: name }, name);
    getElement("state").replaceChildren(...choices.map(createOption));
    for (const id of ["state", "colouring"]) getElement(id).parentElement.hidden = choices.length === 1;
    this.stateChoices = choices;
    this.stateChoice = ALL_STATES;
  }

  /** Shows the samples of some states in all parts of the page. */
  showStates(/** @type {StateChoice} */ choice) {
    this.stateChoice = choice;
    this.showHeat();
    this.selectRange(this.range);
    this.showIncident();
  }

  /** Colours boxes by the states of their samples, or by kind of code. */
  setColouring(/** @type {"state" | "kind"} */ colouring) {
    this.presenter.colouring = colouring;
    for (const view of [this.flame, ...this.sandwich.graphs]) view.redraw();
    this.showLegend();
  }

  /** Which runs of the lanes are of the selected event; null if it has none. */
  getRunFilter() {
    const { lanes, measurements } = this.profile;
    return lanes?.event === this.eventIndex ? getRunFilter(lanes, measurements[0], this.threadMask) : null;
  }

  showHeat() {
    if (!this.hasTime) return;
    const { timelines, lanes, tree, states } = this.profile;
    const marked = this.search && markMatchedNodes(tree, this.search);
    const { mask } = this.stateChoice;
    const isOfEvent = this.getRunFilter();
    const counts = isOfEvent
      ? sumRunsBySpan(lanes, isOfEvent, timelines[0], mask, marked)
      : countSamplesBySpan(timelines[0], mask, marked);
    this.heatMap.show(counts, this.sampledStates.length > 0);
    const shown = this.sampledStates.filter((state) => !mask || mask[state]);
    getElement("heat-legend").replaceChildren(...createStateLegend(shown.map((state) => states[state])));
  }

  /** Compares the time before an incident with the time since. */
  showIncident() {
    this.incidentView?.show(this.profile, (range) => this.cutTimeline(range), this.stateChoice.mask);
  }

  /** The samples of a range as a timeline of one span. Runs are cut at its ends. */
  cutTimeline(/** @type {SpanRange} */ range) {
    const { lanes, timelines } = this.profile;
    const isOfEvent = this.getRunFilter();
    return isOfEvent ? cutRuns(lanes, isOfEvent, timelines[0], range) : sliceTimeline(timelines[0], range);
  }

  /** The timelines and the part of them that is shown. Runs are cut at the ends of the selected range. */
  selectSamples() {
    const { profile, range, wholeRange } = this;
    const selection = { ...range, states: this.stateChoice.mask, separateStates: this.sampledStates };
    const isWhole = range.from === wholeRange.from && range.to === wholeRange.to;
    if (isWhole || !this.getRunFilter()) return { profile, selection };
    const timelines = [this.cutTimeline(range)];
    return { profile: { ...profile, timelines }, selection: { ...selection, from: 0, to: 0 } };
  }

  /** Shows the samples of another event in all parts of the page. */
  showEvent(/** @type {number} */ index) {
    const { profile } = this;
    Object.assign(profile, profile.events[index]);
    this.eventIndex = index;
    setValuesAreTimes(profile.measurements[0].unit_ns > 0);
    this.sampleCounts = profile.timelines.map(countSamples);
    if (this.threadMask) profile.timelines = profile.timelines.map((timeline) => keepThreads(timeline, this.threadMask));
    this.showHeader(profile.measurements, this.sampleCounts);
    this.heatMap.setTimeline(profile.timelines[0]);
    this.fillStateChoice();
    this.setPattern(getElement("pattern").value);
    this.selectRange(this.range);
    this.showIncident();
    this.showLegend();
  }

  showHeader(/** @type {Measurement[]} */ measurements, /** @type {number[]} */ samples) {
    const title = formatTitle(measurements);
    document.title = title;
    getElement("target").replaceChildren(createNameElement(title));
    getElement("facts").replaceChildren(...createFacts(measurements, samples));
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
    on("colouring", "change", () => this.setColouring(getElement("colouring").value));
    on("roots", "change", () => this.rebuildTree());
    on("order", "change", () => this.rebuildTree());
    on("side", "change", () => this.setRootSide());
    on("widths", "change", () => this.setWidths());
    on("range", "submit", (event) => event.preventDefault());
    on("from", "change", () => this.selectTypedRange());
    on("to", "change", () => this.selectTypedRange());
    on("whole", "click", () => this.selectRange(this.wholeRange));
    on("all-threads", "click", () => showAllThreads(this));
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
      if (select.parentElement.hidden) return;
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
      { keys: ["k"], label: "k", help: "colour boxes by state or by kind of code", action: () => selectNext("colouring") },
    ];
    const runtimeKeys = [{ keys: ["v"], label: "v", help: "runtime events", action: () => this.goToTab("events") }];
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
      ...(this.eventView ? runtimeKeys : []),
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
      const wasZoomed = this.tab === "sandwich" && this.sandwich.resetZoom();
      if (!wasZoomed) this.goToTab("flame");
    } else if (this.zoomHistory.length > 0) {
      this.zoomTo(this.zoomHistory.pop());
    } else if (this.zoomed !== 0) {
      this.zoomTo(0);
    }
  }

  setPattern(/** @type {string} */ pattern) {
    this.search = searchFunctions(this.profile.functions, pattern);
    for (const part of [this.flame, ...this.sandwich.graphs, this.functionTable]) part.setSearch(this.search);
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
    this.eventView?.setRange(from * spanSeconds, isWhole ? Infinity : (to + 1) * spanSeconds);
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
    const views = { flame: [this.flame], sandwich: this.sandwich.graphs }[this.tab] ?? [];
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
    getElement("details").hidden = shown === "lanes" || shown === "events";
    this.showLegend();
    if (shown === "lanes") this.lanes.draw();
    if (shown === "events") this.eventView.draw();
    this.showBoxDetails(this.flame);
  }

  /** Shows the legend of the tab. */
  showLegend() {
    const { profile, presenter, sampledStates } = this;
    const ofEvents = profile.runtimeEvents ? createEventLegend(profile.runtimeEvents) : [];
    const isByState = sampledStates.length > 0 && presenter.colouring === "state";
    const ofBoxes = () =>
      isByState ? createStateLegend(sampledStates.map((state) => profile.states[state])) : presenter.createLegend();
    const legends = {
      lanes: () => [...createStateLegend(listLaneStates(profile)), ...ofEvents],
      events: () => ofEvents,
    };
    getElement("legend").replaceChildren(...(legends[this.tab] ?? ofBoxes)());
  }

  showSandwich(/** @type {number} */ functionIndex) {
    this.sandwichFunction = functionIndex;
    this.functionTable.setSelectedFunction(functionIndex);
    this.showTab("sandwich");
    this.fillSandwich();
    this.announce(`callers and callees of ${this.profile.functions.name[functionIndex]}`);
  }

  fillSandwich() {
    this.sandwich.show(this.flame.tree, this.sandwichFunction, getElement("order").value);
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
    for (const view of [this.flame, ...this.sandwich.graphs]) view.redraw();
    this.heatMap.draw();
    this.lanes?.draw();
  }

  /** Sends a text to screen readers. */
  announce(/** @type {string} */ text) {
    getElement("spoken").textContent = text;
  }
}

function countSamples(/** @type {Timeline} */ { count }) {
  let samples = 0;
  for (let entry = 0; entry < count.length; entry += 1) samples += count[entry];
  return samples;
}
