// Marks in lanes: exceptions and waits for locks of a thread, at most one of each kind for a pixel.

import { formatCssColour } from "./colours.js";
import { LANE_PX } from "./lanes.js";
import { listEventsOfKind, MARKS } from "./runtime_events.js";
import { formatThreadKey } from "./stack_list.js";

/** @import { TimeAxis } from "./bands.js" */
/** @import { ThemeColours } from "./colours.js" */
/** @import { Lanes } from "./lanes.js" */
/** @import { RuntimeEvents } from "./runtime_events.js" */
/** @import { Threads } from "./stack_list.js" */

/** The height of the triangle of an exception, and of the bar of a wait for a lock. */
const MARK_PX = 6;
const BAR_PX = 3;

/** The distance from the pointer within which a mark is found. */
const MARK_REACH_PX = 4;

export class LaneMarks {
  /**
   * @param {RuntimeEvents} events
   * @param {Lanes} lanes
   * @param {Threads} threads
   * @param {ThemeColours} colours
   */
  constructor(events, lanes, threads, colours) {
    this.events = events;
    this.colours = colours;
    const laneOf = new Map(lanes.names.map((_, lane) => [formatThreadKey(lanes.process[lane], lanes.tid[lane]), lane]));
    const getLane = (event) => {
      const thread = events.thread[event];
      return thread < 0 ? undefined : laneOf.get(formatThreadKey(threads.process[thread], threads.tid[thread]));
    };
    /** Events without a lane are those of undefined. @type {{colour: string, isBar: boolean, byLane: LanesOfEvents}[]} */
    this.kinds = Object.entries(MARKS).map(([name, colour]) => {
      const grouped = Map.groupBy(listEventsOfKind(events, name), getLane);
      const byLane = new Map([...grouped].map(([lane, found]) => [lane, this.createLaneEvents(found)]));
      return { colour, isBar: name !== "exception", byLane };
    });
  }

  /** @typedef {Map<number | undefined, LaneEvents>} LanesOfEvents */

  /**
   * The events of a kind in a lane.
   * @typedef {object} LaneEvents
   * @property {number[]} found in time order
   * @property {number} longest the longest duration
   */

  /** @returns {LaneEvents} */
  createLaneEvents(/** @type {number[]} */ found) {
    const longest = found.reduce((most, event) => Math.max(most, this.events.duration[event]), 0);
    return { found, longest };
  }

  /** Draws the marks of a lane. */
  drawLane(context, /** @type {number} */ lane, /** @type {TimeAxis} */ axis, /** @type {{left: number, top: number}} */ place) {
    const { start, duration } = this.events;
    const pxPerNs = axis.widthPx / (axis.to - axis.from);
    for (const { colour, isBar, byLane } of this.kinds) {
      const marks = byLane.get(lane);
      if (!marks) continue;
      const { found } = marks;
      context.fillStyle = formatCssColour(this.colours.events[colour]);
      let at = this.findFirst(found, axis.from - (isBar ? marks.longest : 0));
      while (at < found.length && start[found[at]] < axis.to) {
        const leftPx = (start[found[at]] - axis.from) * pxPerNs;
        const rightPx = leftPx + duration[found[at]] * pxPerNs;
        if (!isBar) fillTriangle(context, place.left + leftPx, place.top);
        else if (rightPx >= 0) fillBar(context, place, Math.max(leftPx, 0), Math.min(rightPx, axis.widthPx));
        at = this.findFirst(found, axis.from + (Math.floor(leftPx) + 1) / pxPerNs, at + 1);
      }
    }
  }

  /** Finds the first event from a place on that begins at a time or later. */
  findFirst(/** @type {number[]} */ found, /** @type {number} */ time, from = 0) {
    let [low, high] = [from, found.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.events.start[found[middle]] >= time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** @returns {number | null} the mark of a lane at a time, nanoseconds */
  findAt(/** @type {number} */ lane, /** @type {number} */ time, /** @type {number} */ nsPerPx) {
    const { start, duration } = this.events;
    const reach = MARK_REACH_PX * nsPerPx;
    for (const { byLane } of this.kinds) {
      const marks = byLane.get(lane);
      if (!marks) continue;
      const at = this.findFirst(marks.found, time - reach);
      const candidates = [marks.found[at], marks.found[at - 1]].filter((event) => event !== undefined);
      const isAt = (event) => start[event] - reach <= time && time <= start[event] + duration[event] + reach;
      const found = candidates.find(isAt);
      if (found !== undefined) return found;
    }
    return null;
  }
}

function fillTriangle(context, /** @type {number} */ x, /** @type {number} */ top) {
  context.beginPath();
  context.moveTo(x - MARK_PX / 2, top);
  context.lineTo(x + MARK_PX / 2, top);
  context.lineTo(x, top + MARK_PX);
  context.fill();
}

function fillBar(context, { left, top }, /** @type {number} */ from, /** @type {number} */ to) {
  context.fillRect(left + from, top + LANE_PX - 2 - BAR_PX, Math.max(to - from, 2), BAR_PX);
}
