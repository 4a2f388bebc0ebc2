// What every key does, and the table that says so.

/**
 * @typedef {object} Key
 * @property {string[]} keys as the browser names them
 * @property {string} shown
 * @property {string} what
 * @property {() => void} action
 */

/** Keys of parts of the page that have the focus; they are told here and heard there. */
const KEYS_OF_PARTS = [
  ["← → ↑ ↓", "in a graph: the next box; in the table: the next function"],
  ["Enter", "in a graph: zoom; in the table: callers and callees"],
  ["Tab", "the next part of the page"],
];

const KEYS_OF_HEAT_MAP = [
  ["← → ↑ ↓", "in the heat map: the next span"],
  ["Enter", "in the heat map: select the column"],
  ["Shift ← → ↑ ↓", "in the heat map: select a range"],
];

function listenToKeys(/** @type {Key[]} */ keys) {
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    const isTyping = target.matches("input, select");
    if (isTyping && event.key === "Escape") target.blur();
    if (isTyping || document.querySelector("dialog[open]")) return;
    const key = keys.find(({ keys: names }) => names.includes(event.key));
    if (!key) return;
    event.preventDefault();
    key.action();
  });
}

/** @param {boolean} hasHeatMap */
function fillHelp(/** @type {HTMLDialogElement} */ dialog, /** @type {Key[]} */ keys, hasHeatMap) {
  const ofParts = [...KEYS_OF_PARTS, ...(hasHeatMap ? KEYS_OF_HEAT_MAP : [])];
  const rows = [...ofParts, ...keys.map(({ shown, what }) => [shown, what])];
  const row = ([shown, what]) =>
    element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, shown)), element("td", {}, what));
  const close = element("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close");
  dialog.append(element("h2", {}, "Keys"), element("table", {}, ...rows.map(row)), close);
}
