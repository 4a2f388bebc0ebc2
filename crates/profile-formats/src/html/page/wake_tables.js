// The tables beside callers and callees: which wakers ended the waits of a function, and which waits the function ended.

import { MAX_STEP_LENGTH } from "./breadcrumbs.js";
import { areValuesTimes, createElement, createNameElement, NUMBER_FORMAT } from "./elements.js";
import { SIDE_NAMES } from "./measured.js";
import { createShareCell } from "./shares.js";
import { listSeparators, listWaitsEndedBy, listWakersOf } from "./wakers.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { Presenter } from "./shares.js" */
/** @import { WakeRow } from "./wakers.js" */

/** The maximum number of rows of a table. */
const MAX_WAKE_ROWS = 100;

export class WakeTables {
  /**
   * @param {HTMLElement} holder
   * @param {{presenter: Presenter, onSelectFunction: (functionIndex: number) => void}} options
   */
  constructor(holder, options) {
    this.holder = holder;
    this.options = options;
  }

  /** Shows the wakes from and to a function; nothing if the tree has no wakers. */
  show(/** @type {CallTree} */ tree, /** @type {number} */ functionIndex) {
    const { functions } = this.options.presenter;
    this.holder.hidden = listSeparators(tree, functions.isLabel).length === 0;
    if (this.holder.hidden) return;
    const totals = tree.sides.map(({ total }) => total[0]);
    const wakers = listWakersOf(tree, functions, functionIndex);
    const waits = listWaitsEndedBy(tree, functions, functionIndex);
    this.holder.replaceChildren(
      ...this.createTable("Woken by", ["waker", "in"], "No waker of its waits is known.", wakers, totals),
      ...this.createTable("Wakes", ["threads", "wait in"], "It ended no wait.", waits, totals),
    );
  }

  /**
   * @param {string} title
   * @param {string[]} headings of the thread and of the functions
   * @param {string} empty the text of a table without rows
   * @param {WakeRow[]} rows
   * @param {number[]} totals
   */
  createTable(title, headings, empty, rows, totals) {
    const heading = createElement("h2", {}, title);
    if (rows.length === 0) return [heading, createElement("p", {}, empty)];
    const sides = totals.length > 1 ? SIDE_NAMES : [areValuesTimes ? "time" : "samples"];
    const createHeading = (name) => createElement("th", { scope: "col" }, name);
    const shown = rows.slice(0, MAX_WAKE_ROWS);
    const table = createElement(
      "table",
      { "aria-label": title },
      createElement("thead", {}, createElement("tr", {}, ...[...sides, ...headings].map(createHeading))),
      createElement("tbody", {}, ...shown.map((row) => this.createRow(row, totals))),
    );
    const more = rows.length - shown.length;
    return [heading, table, ...(more > 0 ? [createElement("p", {}, `${NUMBER_FORMAT.format(more)} more`)] : [])];
  }

  createRow(/** @type {WakeRow} */ { thread, functions, stack, counts }, /** @type {number[]} */ totals) {
    const { names, functions: columns } = this.options.presenter;
    const title = stack.map((index) => columns.name[index]).join("\n");
    const createButton = (index) =>
      createElement(
        "button",
        { type: "button", "aria-label": columns.name[index], onclick: () => this.options.onSelectFunction(index) },
        createNameElement(names.shorten(index, MAX_STEP_LENGTH)),
      );
    const path = functions.flatMap((index, at) => [...(at > 0 ? [" ← "] : []), createButton(index)]);
    return createElement(
      "tr",
      {},
      ...counts.map((count, side) => createShareCell(count, totals[side])),
      createElement("td", {}, createNameElement(thread || "unknown")),
      createElement("td", { title, class: "path" }, ...path),
    );
  }
}
