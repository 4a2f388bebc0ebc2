// Handles the keyboard shortcuts of the page and lists them in the help dialog.

import { createElement } from "./elements.js";

/**
 * @typedef {object} Key
 * @property {string[]} keys values of `KeyboardEvent.key`
 * @property {string} label
 * @property {string} help
 * @property {() => void} action
 */

/** Help texts for keys that the focused part of the page handles. */
const PART_KEYS = [
  ["← → ↑ ↓", "in a graph: the next box; in the table: the next function"],
  ["Enter", "in a graph: zoom; in the table: callers and callees"],
  ["Tab", "the next part of the page"],
];

const HEAT_MAP_KEYS = [
  ["← → ↑ ↓", "in the heat map: the next span"],
  ["Enter", "in the heat map: select the column"],
  ["Shift ← → ↑ ↓", "in the heat map: select a range"],
];

export function listenToKeys(/** @type {Key[]} */ keys) {
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target.matches("input, select");
    if (isTyping && event.key === "Escape") leave(target);
    if (isTyping || document.querySelector("dialog[open]")) return;
    const key = keys.find(({ keys: names }) => names.includes(event.key));
    if (!key) return;
    event.preventDefault();
    key.action();
  });
}

/** Leaves an input. A search is cleared, with what it selects. */
function leave(/** @type {HTMLElement} */ input) {
  if (input instanceof HTMLInputElement && input.type === "search") {
    input.value = "";
    input.dispatchEvent(new Event("input"));
  }
  input.blur();
}

/** @param {boolean} hasHeatMap */
export function fillHelp(/** @type {HTMLDialogElement} */ dialog, /** @type {Key[]} */ keys, hasHeatMap) {
  const partKeys = [...PART_KEYS, ...(hasHeatMap ? HEAT_MAP_KEYS : [])];
  const rows = [...partKeys, ...keys.map(({ label, help }) => [label, help])];
  const createRow = (/** @type {string[]} */ [label, help]) =>
    createElement(
      "tr",
      {},
      createElement("th", { scope: "row" }, createElement("kbd", {}, label)),
      createElement("td", {}, help),
    );
  const close = createElement("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.append(createElement("h2", {}, "Keys"), createElement("table", {}, ...rows.map(createRow)), close);
}
