// The view in the address of the page: what is selected is in the part behind `#`, so that a view can be shared, and is shown
// again after a reload.

import { findVisibleAncestor, followPath } from "./call_tree.js";
import { getElement } from "./elements.js";
import { markThreads } from "./findings.js";
import { ALL_STATES } from "./states.js";
import { TABS } from "./tabs.js";

/** @import { App } from "./app.js" */

/** The choices that are in the address where they are not the first one. */
const CHOICES = ["waits", "roots", "order", "side", "widths", "colouring"];

/** Browsers limit how often a page changes its address. */
const DELAY_MS = 200;

export class ViewAddress {
  constructor(/** @type {App} */ app) {
    this.app = app;
    /** @type {Map<string, string>} the values that are not in the address */
    this.initial = new Map();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** Shows the view of the address, now and when a user changes it. */
  start() {
    this.initial = this.describe();
    if (location.hash.length > 1) this.restore();
    addEventListener("hashchange", () => this.restore());
  }

  /** Has the address name the shown view, once the user pauses. */
  noteChange() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), DELAY_MS);
  }

  write() {
    const changed = [...this.describe()].filter(([key, value]) => value !== this.initial.get(key));
    const [page] = location.href.split("#");
    const view = new URLSearchParams(changed).toString();
    history.replaceState(null, "", view === "" ? page : `${page}#${view}`);
  }

  /** The shown view. */
  describe() {
    const { shown, graphs, tab } = this.app;
    const { profile, range, threadMask } = shown;
    const threads = threadMask ? profile.threads.tid.filter((_, thread) => threadMask[thread] === 1) : [];
    /** @type {Map<string, string>} */
    const view = new Map();
    view.set("event", profile.measurements[0].event);
    view.set("state", shown.stateChoice.name);
    view.set("threads", threads.join("."));
    view.set("range", shown.isWholeTime() ? "" : `${range.from}.${range.to}`);
    for (const id of CHOICES) view.set(id, getElement(id).value);
    view.set("search", getElement("pattern").value);
    view.set("zoom", graphs.zoomed === 0 ? "" : graphs.listZoomedPath().join("."));
    view.set("tab", tab);
    view.set("function", tab === "sandwich" ? String(graphs.selectedFunction) : "");
    view.set("filter", getElement("event-filter").value);
    return view;
  }

  /** Shows the view of the address. What the profile does not have is left out. */
  restore() {
    const { app } = this;
    const { shown, graphs } = app;
    const { profile } = shown;
    const given = new URLSearchParams(location.hash.slice(1));
    const read = (/** @type {string} */ key) => given.get(key) ?? this.initial.get(key) ?? "";
    const readNumbers = (/** @type {string} */ key) => read(key).split(".").filter(Boolean).map(Number);
    const event = profile.events.findIndex(({ measurements }) => measurements[0].event === read("event"));
    shown.threadMask = markThreads(profile.threads, readNumbers("threads"));
    getElement("all-threads").hidden = shown.threadMask === null;
    for (const id of CHOICES) selectOption(id, read(id));
    shown.showsWaitFrames = getElement("waits").value === "frames";
    getElement("pattern").value = read("search");
    getElement("event-filter").value = read("filter");
    if (event >= 0) getElement("event").selectedIndex = event;
    const [from = 0, to = shown.wholeRange.to] = readNumbers("range");
    const isRange = 0 <= from && from <= to && to <= shown.wholeRange.to;
    shown.range = isRange ? { from, to } : shown.wholeRange;
    app.showEvent(event >= 0 ? event : shown.eventIndex);
    const state = shown.stateChoices.find(({ name }) => name === read("state")) ?? shown.stateChoices[0] ?? ALL_STATES;
    getElement("state").selectedIndex = shown.stateChoices.indexOf(state);
    app.showStates(state);
    graphs.setRootSide();
    const { shownTree: tree } = graphs.flame;
    graphs.zoom(findVisibleAncestor(tree, followPath(tree, readNumbers("zoom"))));
    const [functionIndex] = readNumbers("function");
    const tab = TABS.includes(read("tab")) && !getElement(`tab-${read("tab")}`).hidden ? read("tab") : "flame";
    if (tab === "sandwich" && profile.functions.name[functionIndex] !== undefined) app.showFunction(functionIndex);
    else app.showTab(tab);
  }
}

function selectOption(/** @type {string} */ id, /** @type {string} */ value) {
  const select = /** @type {HTMLSelectElement} */ (getElement(id));
  if ([...select.options].some((option) => option.value === value)) select.value = value;
}
