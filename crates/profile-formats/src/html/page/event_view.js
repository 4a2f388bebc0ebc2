// The view of runtime events: a filter, the table, and the stack of the selected event.

import { announce, formatDuration, formatSeconds, getElement, NUMBER_FORMAT } from "./elements.js";
import { EventTable } from "./event_table.js";
import { nameWaitingFunction } from "./folded_waits.js";
import { listFunctionsTo } from "./lanes.js";
import { required } from "./required.js";
import { findNearestStack, showStack } from "./stack_list.js";

/** @import { Profile } from "./document.js" */
/** @import { RuntimeEvents } from "./runtime_events.js" */
/** @import { NearStack } from "./stack_list.js" */

export class EventView {
  /**
   * @param {Profile} profile
   * @param {(thread: number, path: number[]) => void} onZoom shows a stack of a thread in the flame graph
   */
  constructor(profile, onZoom) {
    this.profile = profile;
    this.onZoom = onZoom;
    const events = required(profile.runtimeEvents);
    this.events = events;
    /** @type {string[]} the text of each row in lower case, by event */
    this.rowTexts = [];
    this.range = { from: 0, to: Infinity };
    this.filter = getElement("event-filter");
    this.filter.addEventListener("input", () => this.show());
    this.table = new EventTable(getElement("event-rows"), { events, onSelect: (event) => this.showEvent(event) });
  }

  /** Shows the events that overlap a time range, seconds. */
  setRange(/** @type {number} */ from, /** @type {number} */ to) {
    this.range = { from: from * 1e9, to: to * 1e9 };
    this.show();
  }

  /** Shows the events of the range that contain all words of the filter. */
  show() {
    const { start, duration, count, total, isLowerBound } = this.events;
    const { from, to } = this.range;
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [];
    for (let event = 0; event < count; event += 1) {
      const isInRange = start[event] < to && start[event] + duration[event] >= from;
      if (isInRange && words.every((word) => this.getRowText(event).includes(word))) found.push(event);
    }
    this.table.show(found);
    const bound = isLowerBound ? "at least " : "";
    const of = found.length < total || isLowerBound ? ` of ${bound}${NUMBER_FORMAT.format(total)}` : "";
    getElement("event-count").textContent = `${NUMBER_FORMAT.format(found.length)}${of} events`;
  }

  /** Returns the text of a row, which is created when a filter first needs it. */
  getRowText(/** @type {number} */ event) {
    this.rowTexts[event] ??= this.table.columns.map(({ text }) => text(event)).join(" ").toLowerCase();
    return this.rowTexts[event];
  }

  draw() {
    this.table.draw();
  }

  /** Shows the stack of an event, or the stack of its thread around its time. */
  showEvent(/** @type {number} */ event) {
    const { profile, events } = this;
    const { tree, functions } = profile;
    const thread = events.thread[event];
    const own = events.node[event];
    const near = own >= 0 || thread < 0 ? null : findNearestStack(profile, thread, events.start[event] / 1e9);
    const node = own >= 0 ? own : (near?.node ?? 0);
    const path = listFunctionsTo(tree, node);
    const names = path.map((index) => functions.name[index]);
    const title = `${describeEvent(events, event)}: ${describeSource(own >= 0, near)}`;
    const onZoom = near && (() => this.onZoom(near.thread, path));
    showStack(getElement("event-stack"), title, names, onZoom);
    announce(`${title}${names.length > 0 ? `, in ${nameWaitingFunction(functions, path)}` : ""}`);
  }
}

/** Describes an event: kind, thread, time, length and fields. */
export function describeEvent(/** @type {RuntimeEvents} */ events, /** @type {number} */ event) {
  const { kinds, kind, start, duration } = events;
  const length = duration[event] > 0 ? ` for ${formatDuration(duration[event])}` : "";
  const fields = events.getFields(event);
  const at = formatSeconds(start[event] / 1e9);
  return `${kinds[kind[event]]} of ${events.getOwner(event)} at ${at}${length}${fields && ` (${fields})`}`;
}

/** Describes where a stack is from. */
function describeSource(/** @type {boolean} */ isOwn, /** @type {NearStack | null} */ near) {
  if (isOwn) return "its stack";
  if (!near) return "no stack";
  const { distanceSeconds } = near;
  return distanceSeconds > 0 ? `the nearest stack of the thread, ${formatDuration(distanceSeconds * 1e9)} away` : "the stack of the thread at that time";
}
