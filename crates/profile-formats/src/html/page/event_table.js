// The table of runtime events, sorted by any column. Only the rows in view are in the document.

import { createElement, createNameElement, formatDuration } from "./elements.js";
import { required } from "./required.js";

/** @import { RuntimeEvents } from "./runtime_events.js" */

const EVENT_ROW_PX = 22;

/** The rows above and below the view, so that a small step shows no gap. */
const EXTRA_ROWS = 8;

/**
 * @typedef {object} EventColumn
 * @property {string} key
 * @property {string} label
 * @property {"ascending" | "descending"} direction the initial one
 * @property {(event: number) => string} text
 * @property {(a: number, b: number) => number} compare
 */

export class EventTable {
  /**
   * @param {HTMLElement} holder
   * @param {{events: RuntimeEvents, onSelect: (event: number) => void}} options
   */
  constructor(holder, options) {
    this.options = options;
    this.holder = holder;
    this.columns = createEventColumns(options.events);
    /** @type {EventColumn} */
    this.sortedBy = this.columns[0];
    this.direction = this.sortedBy.direction;
    /** @type {number[]} the shown events in the order of the table */
    this.order = [];
    /** @type {number | null} */
    this.selected = null;
    this.headings = this.columns.map((column) => this.createHeading(column));
    this.body = createElement("tbody");
    const head = createElement("thead", {}, createElement("tr", {}, ...this.headings));
    this.table = /** @type {HTMLTableElement} */ (createElement("table", { class: "events" }, head, this.body));
    holder.append(this.table);
    holder.addEventListener("scroll", () => this.draw());
    holder.addEventListener("keydown", (event) => this.moveSelection(event));
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  createHeading(/** @type {EventColumn} */ column) {
    const button = createElement("button", { type: "button", onclick: () => this.sortBy(column) }, column.label);
    return createElement("th", { scope: "col", class: column.key }, button);
  }

  sortBy(/** @type {EventColumn} */ column) {
    const opposite = this.direction === "ascending" ? "descending" : "ascending";
    this.direction = column === this.sortedBy ? opposite : column.direction;
    this.sortedBy = column;
    this.show(this.order);
  }

  /** Shows these events. */
  show(/** @type {number[]} */ found) {
    const { compare } = this.sortedBy;
    const sign = this.direction === "ascending" ? 1 : -1;
    this.order = [...found].sort((a, b) => sign * compare(a, b) || a - b);
    this.headings.forEach((heading, index) => {
      const isSorted = this.columns[index] === this.sortedBy;
      heading.setAttribute("aria-sort", isSorted ? this.direction : "none");
    });
    this.table.setAttribute("aria-rowcount", String(this.order.length + 1));
    this.draw();
  }

  /** Draws the rows in view, between spaces of the height of the other ones. */
  draw() {
    const { holder, order } = this;
    const inView = Math.ceil(holder.clientHeight / EVENT_ROW_PX);
    const first = Math.max(Math.floor(holder.scrollTop / EVENT_ROW_PX) - EXTRA_ROWS, 0);
    const end = Math.min(first + inView + 2 * EXTRA_ROWS, order.length);
    const rows = order.slice(first, end).map((event, index) => this.createRow(event, first + index));
    this.body.replaceChildren(createSpace(first), ...rows, createSpace(order.length - end));
  }

  createRow(/** @type {number} */ event, /** @type {number} */ position) {
    const cells = this.columns.map(({ key, text }) => {
      const shown = text(event);
      return createElement("td", { class: key, title: shown }, createNameElement(shown));
    });
    const attributes = {
      "aria-rowindex": position + 2,
      "aria-selected": event === this.selected ? "true" : "false",
      onclick: () => this.select(event),
    };
    return createElement("tr", attributes, ...cells);
  }

  select(/** @type {number} */ event) {
    this.selected = event;
    this.draw();
    this.options.onSelect(event);
  }

  moveSelection(/** @type {KeyboardEvent} */ event) {
    const { order, holder } = this;
    const page = Math.max(Math.floor(holder.clientHeight / EVENT_ROW_PX) - 1, 1);
    const at = order.indexOf(this.selected ?? -1);
    const moves = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: order.length - 1,
    };
    const to = moves[event.key];
    if (to === undefined || order.length === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const position = Math.min(Math.max(to, 0), order.length - 1);
    this.scrollTo(position);
    this.select(order[position]);
    event.preventDefault();
    event.stopPropagation();
  }

  /** Scrolls until a row is below the heading and above the end of the view. */
  scrollTo(/** @type {number} */ position) {
    const { holder } = this;
    const headPx = required(this.table.tHead).clientHeight;
    const top = position * EVENT_ROW_PX;
    const bottom = top + headPx + EVENT_ROW_PX;
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (bottom > holder.scrollTop + holder.clientHeight) holder.scrollTop = bottom - holder.clientHeight;
  }
}

/** @returns {EventColumn[]} */
function createEventColumns(/** @type {RuntimeEvents} */ events) {
  const { start, duration, kind, kinds } = events;
  /** @returns {EventColumn} */
  const textColumn = (key, label, text) => ({
    key,
    label,
    direction: "ascending",
    text,
    compare: (a, b) => {
      const [one, other] = [text(a), text(b)];
      return one < other ? -1 : Number(one > other);
    },
  });
  return [
    {
      key: "time",
      label: "Time",
      direction: "ascending",
      text: (event) => `${(start[event] / 1e9).toFixed(6)} s`,
      compare: (a, b) => start[a] - start[b],
    },
    {
      key: "duration",
      label: "Duration",
      direction: "descending",
      text: (event) => (duration[event] > 0 ? formatDuration(duration[event]) : ""),
      compare: (a, b) => duration[a] - duration[b],
    },
    textColumn("kind", "Kind", (event) => kinds[kind[event]]),
    textColumn("owner", "Thread", events.getOwner),
    textColumn("event", "Event", events.getName),
    textColumn("fields", "Fields", events.getFields),
  ];
}

/** Creates a row of the height of rows that are not in view. */
function createSpace(/** @type {number} */ rows) {
  const space = createElement("tr", { "aria-hidden": "true" });
  space.style.height = `${rows * EVENT_ROW_PX}px`;
  return space;
}
