// Bands: garbage collections and suspensions, drawn over everything at their time.

import { formatCssColour } from "./colours.js";
import { BANDS, listEventsOfKind } from "./runtime_events.js";

/** @import { ThemeColours } from "./colours.js" */
/** @import { RuntimeEvents } from "./runtime_events.js" */

/**
 * The parts of a band's colour in a pixel that it touches, and in one that it covers. Suspensions stop all threads;
 * collections can take long beside them.
 */
const BAND_PARTS = { collection: [0.12, 0.3], suspension: [0.25, 0.6] };

/**
 * A time axis: nanoseconds at its ends, and its width.
 * @typedef {object} TimeAxis
 * @property {number} from
 * @property {number} to
 * @property {number} widthPx
 */

/** The bands of a profile, by process. */
export class Bands {
  constructor(/** @type {RuntimeEvents} */ events, /** @type {ThemeColours} */ colours) {
    this.events = events;
    this.colours = colours;
    /** @type {{colour: string, byProcess: Map<number, number[]>}[]} */
    this.kinds = Object.entries(BANDS).map(([name, colour]) => ({
      colour,
      byProcess: Map.groupBy(listEventsOfKind(events, name), (event) => events.process[event]),
    }));
  }

  /** Draws the bands of all processes. */
  draw(context, /** @type {TimeAxis} */ axis, /** @type {{left: number, top: number, height: number}} */ place) {
    for (const { colour, byProcess } of this.kinds) {
      this.fill(context, colour, coverPixels(this.events, [...byProcess.values()].flat(), axis), place);
    }
  }

  /** Draws the bands of a process. */
  drawProcess(context, /** @type {number} */ process, /** @type {TimeAxis} */ axis, place) {
    for (const { colour, byProcess } of this.kinds) {
      this.fill(context, colour, coverPixels(this.events, byProcess.get(process) ?? [], axis), place);
    }
  }

  /** Fills each pixel by the part that is covered; equal neighbours are one rectangle. */
  fill(context, /** @type {string} */ colour, /** @type {Float64Array} */ covered, { left, top, height }) {
    const [touched, whole] = BAND_PARTS[colour];
    context.fillStyle = formatCssColour(this.colours.events[colour]);
    for (let first = 0; first < covered.length; ) {
      let last = first;
      while (last + 1 < covered.length && covered[last + 1] === covered[first]) last += 1;
      if (covered[first] > 0) {
        context.globalAlpha = touched + (whole - touched) * covered[first];
        context.fillRect(left + first, top, last + 1 - first, height);
      }
      first = last + 1;
    }
    context.globalAlpha = 1;
  }
}

/**
 * Computes the part of each pixel of an axis that events cover, at most 1. The cost grows with the events and the pixels.
 * @param {RuntimeEvents} events
 * @param {number[]} indices
 * @param {TimeAxis} axis
 */
function coverPixels({ start, duration }, indices, { from, to, widthPx }) {
  const covered = new Float64Array(Math.max(Math.ceil(widthPx), 0));
  /** The change, from pixel to pixel, of the number of events that cover the whole pixel. */
  const whole = new Int32Array(covered.length + 1);
  const pxPerNs = widthPx / (to - from);
  for (const event of indices) {
    const left = Math.max((start[event] - from) * pxPerNs, 0);
    const right = Math.min((start[event] + duration[event] - from) * pxPerNs, covered.length);
    if (right < 0 || left >= covered.length || start[event] + duration[event] < from) continue;
    const [first, last] = [Math.floor(left), Math.min(Math.floor(right), covered.length - 1)];
    if (first === last) {
      covered[first] += Math.max(right - left, Number.EPSILON);
    } else {
      covered[first] += first + 1 - left;
      covered[last] += right - last;
      whole[first + 1] += 1;
      whole[last] -= 1;
    }
  }
  let covering = 0;
  return covered.map((part, px) => {
    covering += whole[px];
    return Math.min(part + covering, 1);
  });
}
