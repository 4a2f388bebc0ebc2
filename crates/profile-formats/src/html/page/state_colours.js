// Colours boxes by the states of their samples, and describes their shares.

import { createShade, readStyleColour } from "./colours.js";
import { formatPercent } from "./elements.js";
import { STATES } from "./states.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { Shade } from "./colours.js" */
/** @import { BoxPlace } from "./flame.js" */

/** Divides boxes from left to right by the shares of the states of their samples, in the order of the legend. */
export class StateColours {
  constructor(/** @type {string[]} */ stateNames) {
    this.stateNames = stateNames;
    /** The colours of each state, by its index. @type {Shade[]} */
    this.boxes = [];
  }

  readStyleColours(/** @type {number[]} */ background) {
    this.boxes = this.stateNames.map((state) => createShade(readStyleColour(`--${state}`), background));
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {CallTree} tree
   * @param {number} node
   * @param {boolean} isFaded
   * @param {BoxPlace} place
   */
  fillBox(context, { states, sides: [{ total: totals }] }, node, isFaded, { left, top, width, height }) {
    let sum = 0;
    let from = left;
    for (const { state, total } of states) {
      if (total[node] === 0) continue;
      sum += total[node];
      // Whole pixels have sharp edges; the last part ends where the box does.
      const isLast = sum >= totals[node];
      const to = isLast ? left + width : Math.min(Math.round(left + (width * sum) / totals[node]), left + width);
      if (to <= from) continue;
      context.fillStyle = isFaded ? this.boxes[state].faded : this.boxes[state].plain;
      context.fillRect(from, top, to - from, height);
      from = to;
    }
  }

  /** Describes the shares of the states of a box, the largest first, or returns "". */
  describeShares(/** @type {CallTree} */ { states, sides: [{ total: totals }] }, /** @type {number} */ node) {
    /** @type {number[]} */
    const counts = [];
    for (const { state, total } of states) counts[state] = total[node];
    return formatStateShares(counts, totals[node], this.stateNames);
  }
}

/**
 * Formats the shares of states as `80.0 % blocked, 20.0 % on CPU`, the largest first.
 * @param {number[]} counts by state
 * @param {number} total
 * @param {string[]} stateNames
 */
export function formatStateShares(counts, total, stateNames) {
  const found = [...counts.keys()].filter((state) => counts[state] > 0);
  found.sort((one, other) => counts[other] - counts[one]);
  return found.map((state) => `${formatPercent(counts[state], total)} ${STATES[stateNames[state]]}`).join(", ");
}
