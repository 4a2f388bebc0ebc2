// The application: passes what the user selects to the parts of the page.

import { fillEventChoice, fillStateChoice } from "./choices.js";
import { ThemeColours } from "./colours.js";
import { DifferencePresenter } from "./comparison.js";
import { showDetails } from "./details.js";
import { announce, getElement, setValuesAreTimes } from "./elements.js";
import { FindingsView, findSpans, markThreads } from "./findings.js";
import { Graphs } from "./graphs.js";
import { fillHelp, listenToKeys } from "./keys.js";
import { showHeader } from "./measured.js";
import { NameShortener } from "./names.js";
import { createKeys } from "./page_keys.js";
import { required } from "./required.js";
import { escapePattern } from "./search.js";
import { ProfilePresenter } from "./shares.js";
import { ShownSamples } from "./shown_samples.js";
import { focusTab, showLegend, showTab, TABS } from "./tabs.js";
import { TimeViews } from "./time_views.js";
import { ViewAddress } from "./view_address.js";

/** @import { Profile } from "./document.js" */
/** @import { Finding } from "./findings.js" */
/** @import { SpanRange } from "./incident.js" */
/** @import { Presenter } from "./shares.js" */
/** @import { StateChoice } from "./states.js" */

export class App {
  constructor(/** @type {Profile} */ profile) {
    this.shown = new ShownSamples(profile);
    this.presenter = createPresenter(this.shown);
    this.colours = new ThemeColours(profile.states);
    this.tab = "flame";
    const onSelectFunction = (/** @type {number} */ functionIndex) => this.showFunction(functionIndex);
    this.address = new ViewAddress(this);
    this.graphs = new Graphs(this.shown, this.presenter, this.colours, {
      onSelectFunction,
      onZoom: () => this.address.noteChange(),
      onOpenWait: () => this.openWaits(),
    });
    this.timeViews = new TimeViews(this.shown, this.presenter, this.colours, {
      onSelectRange: (range) => this.selectRange(range),
      onSelectFunction,
      onZoomToStack: (thread, path) => this.zoomToStack(thread, path),
    });
    new FindingsView(profile.measurements, (finding) => this.selectFinding(finding));
  }

  start() {
    const { shown, timeViews } = this;
    const { measurements, initialGrouping } = shown.profile;
    const isDifference = shown.isDifference();
    showHeader(measurements, shown.sampleCounts);
    document.body.classList.toggle("compared", isDifference);
    getElement("time").hidden = !shown.hasTime;
    for (const part of [getElement("widths").parentElement, getElement("note")]) part.hidden = !isDifference;
    getElement("hot").textContent = isDifference ? "Largest changes" : "Hot functions";
    getElement("roots").value = initialGrouping;
    getElement("waits").value = shown.showsWaitFrames ? "frames" : "causes";
    getElement("waits").parentElement.hidden = !shown.hasWaitFrames;
    showDetails(getElement("details"), this.presenter, null);
    this.setTheme(null);
    fillEventChoice(shown);
    fillStateChoice(shown);
    getElement("tab-lanes").hidden = timeViews.lanes === null;
    getElement("tab-events").hidden = timeViews.eventView === null;
    this.addListeners();
    getElement("main").hidden = false;
    this.showTab("flame");
    setValuesAreTimes(measurements[0].unit_ns > 0);
    timeViews.showHeat(null);
    this.selectRange(shown.wholeRange);
    timeViews.showIncident();
    this.address.start();
    performance.mark("shown");
  }

  addListeners() {
    const { shown, timeViews } = this;
    const on = (id, event, action) => getElement(id).addEventListener(event, action);
    on("search", "submit", (event) => {
      event.preventDefault();
      this.goToMatch(1);
    });
    on("pattern", "input", () => this.updateSearch());
    on("event", "change", () => this.showEvent(getElement("event").selectedIndex));
    on("state", "change", () => this.showStates(shown.stateChoices[getElement("state").selectedIndex]));
    on("colouring", "change", () => this.setColouring(getElement("colouring").value));
    on("waits", "change", () => this.setWaitFrames(getElement("waits").value === "frames"));
    on("roots", "change", () => this.rebuildTree());
    on("order", "change", () => this.rebuildTree());
    on("side", "change", () => this.setRootSide());
    on("event-filter", "input", () => this.address.noteChange());
    on("widths", "change", () => this.setWidths());
    on("range", "submit", (event) => event.preventDefault());
    for (const id of ["from", "to"]) on(id, "change", () => this.selectRange(timeViews.readTypedRange()));
    on("whole", "click", () => this.selectRange(shown.wholeRange));
    on("all-threads", "click", () => this.showAllThreads());
    on("theme", "click", () => this.switchTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.setTheme(null));
    for (const tab of TABS) on(`tab-${tab}`, "click", () => this.chooseTab(tab));
    const keys = createKeys(this);
    listenToKeys(keys);
    const dialog = /** @type {HTMLDialogElement} */ (getElement("keys"));
    fillHelp(dialog, keys, shown.hasTime);
    on("help", "click", () => dialog.showModal());
  }

  /** Shows the samples of an event in all parts of the page. */
  showEvent(/** @type {number} */ index) {
    const { shown, timeViews } = this;
    shown.selectEvent(index);
    const { measurements } = shown.profile;
    setValuesAreTimes(measurements[0].unit_ns > 0);
    showHeader(measurements, shown.sampleCounts);
    timeViews.setTimeline();
    fillStateChoice(shown);
    this.updateSearch();
    this.selectRange(shown.range);
    timeViews.showIncident();
    this.showLegend();
  }

  /** Shows the samples of some states in all parts of the page. */
  showStates(/** @type {StateChoice} */ choice) {
    this.shown.stateChoice = choice;
    this.timeViews.showHeat(this.graphs.search);
    this.selectRange(this.shown.range);
    this.timeViews.showIncident();
  }

  /** Selects what shows a finding in all parts of the page; null selects everything. */
  selectFinding(/** @type {Finding | null} */ finding) {
    const { shown, timeViews } = this;
    const { profile } = shown;
    const { threads = [], search = "", runtime_events: kind } = finding?.selection ?? {};
    const event = finding?.event ?? shown.eventIndex;
    shown.threadMask = markThreads(profile.threads, threads);
    shown.range = finding && shown.hasTime ? findSpans(required(finding.selection), profile.timelines[0]) : shown.wholeRange;
    getElement("all-threads").hidden = shown.threadMask === null;
    getElement("pattern").value = escapePattern(search);
    getElement("event-filter").value = kind ?? "";
    getElement("event").selectedIndex = event;
    this.showEvent(event);
    this.graphs.zoom(0);
    this.showTab(kind && timeViews.eventView ? "events" : "flame");
    announce(finding ? `selected: ${timeViews.selectedText}` : "everything is selected");
  }

  /** Shows all threads again, and keeps the rest of the selection. */
  showAllThreads() {
    this.shown.threadMask = null;
    getElement("all-threads").hidden = true;
    this.showEvent(this.shown.eventIndex);
    getElement("whole").focus();
  }

  selectRange(/** @type {SpanRange} */ range) {
    this.shown.range = range;
    this.rebuildTree();
    this.timeViews.showRange(this.graphs.flame.shownTree.sides[0].total[0]);
  }

  /** Searches for the pattern in the page. */
  updateSearch() {
    this.graphs.updateSearch();
    this.timeViews.showHeat(this.graphs.search);
    this.address.noteChange();
  }

  setRootSide() {
    this.graphs.setRootSide();
    this.address.noteChange();
  }

  rebuildTree() {
    this.address.noteChange();
    this.graphs.rebuildTree();
    if (this.tab === "sandwich") this.graphs.showCallersAndCallees();
  }

  /** Colours boxes by the states of their samples, or by kind of code. */
  setColouring(/** @type {"state" | "kind"} */ colouring) {
    if (this.presenter instanceof ProfilePresenter) this.presenter.colouring = colouring;
    this.graphs.redraw();
    this.showLegend();
    this.address.noteChange();
  }

  /** Shows the frames in which threads wait, or their causes alone. */
  setWaitFrames(/** @type {boolean} */ areShown) {
    this.shown.showsWaitFrames = areShown;
    this.rebuildTree();
  }

  /** Shows the frames in which threads wait, after a click on a cause. */
  openWaits() {
    getElement("waits").value = "frames";
    this.setWaitFrames(true);
  }

  setWidths() {
    if (this.presenter instanceof DifferencePresenter) this.presenter.widths = getElement("widths").value;
    this.rebuildTree();
  }

  showTab(/** @type {string} */ tab) {
    this.tab = tab;
    showTab(tab);
    this.showLegend();
    this.timeViews.drawTab(tab);
    this.graphs.showBoxDetails(this.graphs.flame);
    this.address.noteChange();
  }

  showLegend() {
    showLegend(this.tab, this.shown, this.presenter);
  }

  /** Shows a tab. Callers and callees are of the function at the pointer, else of the last one, else of the hottest. */
  chooseTab(/** @type {string} */ tab) {
    const { graphs } = this;
    const functionIndex =
      tab === "sandwich"
        ? (graphs.getPointedFunction(this.tab) ?? graphs.selectedFunction ?? graphs.functionTable.listFunctions()[0])
        : undefined;
    if (functionIndex === undefined) this.showTab(tab);
    else this.showFunction(functionIndex);
  }

  /** Shows the callers and callees of a function. */
  showFunction(/** @type {number} */ functionIndex) {
    this.graphs.selectFunction(functionIndex);
    this.showTab("sandwich");
    this.graphs.showCallersAndCallees();
    announce(`callers and callees of ${this.shown.profile.functions.name[functionIndex]}`);
  }

  goToTab(/** @type {string} */ tab) {
    this.chooseTab(tab);
    focusTab(this.tab);
  }

  goToMatch(/** @type {1 | -1} */ step) {
    this.chooseTab("flame");
    this.graphs.flame.focusMatch(step);
  }

  goBack() {
    if (this.tab === "flame") {
      this.graphs.zoomBack();
    } else {
      const wasZoomed = this.tab === "sandwich" && this.graphs.sandwich.resetZoom();
      if (!wasZoomed) this.goToTab("flame");
    }
  }

  zoomToStack(/** @type {number} */ thread, /** @type {number[]} */ path) {
    this.goToTab("flame");
    this.graphs.zoomToStack(thread, path);
  }

  isDark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  switchTheme() {
    this.setTheme(this.isDark() ? "light" : "dark");
  }

  /** Sets a theme; null keeps the current one, by default the theme of the system. */
  setTheme(/** @type {"light" | "dark" | null} */ theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    getElement("theme").textContent = this.isDark() ? "Light" : "Dark";
    this.colours.readStyleColours();
    this.presenter.readStyleColours(this.colours.background);
    this.graphs.redraw();
    this.timeViews.redraw();
  }
}

/** @returns {Presenter} */
function createPresenter(/** @type {ShownSamples} */ { profile: { functions, measurements, states }, sampleCounts }) {
  const names = new NameShortener(functions);
  if (measurements.length === 1) return new ProfilePresenter(functions, names, states);
  const effectiveSamples = measurements.map((measurement) => measurement.effective_samples);
  return new DifferencePresenter(functions, names, sampleCounts, effectiveSamples);
}
