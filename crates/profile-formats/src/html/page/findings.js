// Shows the findings of the profile above the graphs: what it shows, each with its remedy. A finding of one profile is a button
// that selects its evidence: event, time, threads and search.

import { createElement, createNameElement, getElement } from "./elements.js";
import { SIDE_NAMES } from "./measured.js";

/** @import { Measurement, Timeline } from "./document.js" */
/** @import { SpanRange } from "./incident.js" */
/** @import { Threads } from "./stack_list.js" */

/**
 * What a finding states. A line without `selection` is text alone, as that of an incident.
 * @typedef {object} Finding
 * @property {string} text
 * @property {number} [event] the index of its event; none for a finding of runtime events
 * @property {string} [certainty_text]
 * @property {string} [file]
 * @property {number} [line]
 * @property {ManagedThread[]} [managed_threads] those that own locks
 * @property {FindingSelection} [selection]
 */

/**
 * @typedef {object} ManagedThread
 * @property {number} thread its id
 * @property {number} managed_id
 * @property {string} [name]
 * @property {string} [exception] the type of the exception that it throws or handles
 * @property {string} gc_mode
 */

/**
 * @typedef {object} FindingSelection
 * @property {number} begin_ns
 * @property {number} end_ns
 * @property {number[]} threads ids; none for all threads
 * @property {string} [runtime_events] the name of a kind
 * @property {string} [search] a part of names of functions
 */

export class FindingsView {
  /**
   * @param {Measurement[]} measurements
   * @param {(finding: Finding | null) => void} onSelect with null where the selected finding is chosen again
   */
  constructor(measurements, onSelect) {
    this.onSelect = onSelect;
    /** @type {HTMLElement[]} */
    this.buttons = [];
    const isOne = measurements.length === 1;
    const createSideLines = ({ findings = [] }, side) =>
      findings.map((finding) => (isOne ? this.createLine(finding) : createNameElement(`${SIDE_NAMES[side]}: ${finding.text}`)));
    const items = measurements.flatMap(createSideLines).map((line) => createElement("li", {}, line));
    getElement("findings").replaceChildren(...items);
    getElement("findings").hidden = items.length === 0;
  }

  createLine(/** @type {Finding} */ finding) {
    const { text, selection, certainty_text: certainty, file, line, managed_threads: owners = [] } = finding;
    if (!selection) return createNameElement(text);
    const title = [certainty, ...(file ? [`${file}:${line}`] : []), ...owners.map(describeOwner)].join("\n");
    const onclick = ({ currentTarget }) => this.choose(currentTarget, finding);
    const attributes = { type: "button", title: title ?? false, "aria-pressed": "false", onclick };
    const button = createElement("button", attributes, createNameElement(text));
    this.buttons.push(button);
    return button;
  }

  choose(/** @type {HTMLElement} */ button, /** @type {Finding} */ finding) {
    const isSelected = button.getAttribute("aria-pressed") === "true";
    for (const other of this.buttons) other.setAttribute("aria-pressed", String(other === button && !isSelected));
    this.onSelect(isSelected ? null : finding);
  }
}

/** A managed thread in words: `thread 17 "worker" (managed 5, preemptive): System.FormatException`. */
function describeOwner(/** @type {ManagedThread} */ { thread, managed_id: id, name, exception, gc_mode: mode }) {
  const named = name === undefined ? `thread ${thread}` : `thread ${thread} "${name}"`;
  return `${named} (managed ${id}, ${mode})${exception === undefined ? "" : `: ${exception}`}`;
}

/** The spans of a selection. @returns {SpanRange} */
export function findSpans(/** @type {FindingSelection} */ { begin_ns: beginNs, end_ns: endNs }, /** @type {Timeline} */ timeline) {
  const { spans, spanSeconds } = timeline;
  const clamp = (span) => Math.min(Math.max(span, 0), spans - 1);
  const from = clamp(Math.floor(beginNs / 1e9 / spanSeconds + 1e-6));
  return { from, to: Math.max(from, clamp(Math.ceil(endNs / 1e9 / spanSeconds - 1e-6) - 1)) };
}

/**
 * Marks the threads with these ids; null for all threads, and where the page has none of them.
 * @param {Threads} threads
 * @param {number[]} ids
 */
export function markThreads({ tid }, ids) {
  const wanted = new Set(ids);
  const mask = Uint8Array.from(tid, (id) => Number(wanted.has(id)));
  return mask.includes(1) ? mask : null;
}
