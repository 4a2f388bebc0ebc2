// The keyboard shortcuts of the page.

import { selectNext } from "./choices.js";
import { getElement } from "./elements.js";
import { focusTab } from "./tabs.js";

/** @import { App } from "./app.js" */
/** @import { Key } from "./keys.js" */

/** @returns {Key[]} */
export function createKeys(/** @type {App} */ app) {
  const { shown, timeViews } = app;
  const timeKeys = [
    createKey("m", "focus the heat map", () => getElement("heat").focus()),
    createKey("w", "select the whole time", () => app.selectRange(shown.wholeRange)),
  ];
  const eventKeys = [createKey("e", "show the next event", () => selectNext("event"))];
  const stateKeys = [
    createKey("r", "threads over time", () => app.goToTab("lanes")),
    createKey("c", "show the next state", () => selectNext("state")),
    createKey("k", "colour boxes by state or by kind of code", () => selectNext("colouring")),
  ];
  const waitKeys = [createKey("x", "show the frames of waits, or their causes alone", () => selectNext("waits"))];
  const runtimeKeys = [createKey("v", "runtime events", () => app.goToTab("events"))];
  const differenceKeys = [createKey("b", "widths of both, before or after", () => selectNext("widths"))];
  return [
    createKey("/", "search", () => getElement("pattern").focus()),
    createKey("n", "next match", () => app.goToMatch(1)),
    createKey("N p", "previous match", () => app.goToMatch(-1), ["N", "p"]),
    createKey("Esc ⌫", "back to the previous view", () => app.goBack(), ["Escape", "Backspace"]),
    createKey("0 Home", "show the whole graph", () => app.graphs.zoom(0), ["0", "Home"]),
    createKey("g", "focus the graph", () => focusTab(app.tab)),
    createKey("h", "focus the function table", () => getElement("functions").querySelector("tbody button")?.focus()),
    ...(shown.hasTime ? timeKeys : []),
    createKey("f", "flame graph", () => app.goToTab("flame")),
    createKey("s", "callers and callees of the box", () => app.goToTab("sandwich")),
    createKey("l", "ledger", () => app.goToTab("ledger")),
    createKey("i", "show the root above or below", () => selectNext("side")),
    createKey("t", "group by process name, container, process, thread, thread name or nothing", () => selectNext("roots")),
    createKey("o", "change the order of siblings", () => selectNext("order")),
    ...(shown.profile.events.length > 1 ? eventKeys : []),
    ...(timeViews.lanes ? stateKeys : []),
    ...(shown.hasWaitFrames ? waitKeys : []),
    ...(timeViews.eventView ? runtimeKeys : []),
    ...(shown.isDifference() ? differenceKeys : []),
    createKey("d", "switch between dark and light", () => app.switchTheme()),
    createKey("?", "show these keys", () => getElement("help").click()),
  ];
}

/**
 * @param {string} label
 * @param {string} help
 * @param {() => void} action
 * @param {string[]} keys
 * @returns {Key}
 */
function createKey(label, help, action, keys = [label]) {
  return { keys, label, help, action };
}
