// A share of samples before and after, and how far apart chance alone may put the two: as `difference/change.rs` has it.

/**
 * @typedef {object} Change
 * @property {number} before share, in a hundred
 * @property {number} after share, in a hundred
 * @property {number} points after less before, in points of a hundred
 * @property {number} noise what sampling alone makes of no change, in points of a hundred to either side
 * @property {boolean} isBeyondNoise
 */

/** What 95 of 100 normally distributed values keep to, in standard deviations. */
const Z_95 = 1.96;

/**
 * The interval is that of Agresti and Caffo ("Simple and effective confidence intervals for proportions and differences
 * of proportions", The American Statistician 54, 2000): with a success and a failure added to each side.
 * @param {number[]} counts samples before and after
 * @param {number[]} of all samples before and after
 * @returns {Change}
 */
function changeOf(counts, of) {
  const before = (100 * counts[0]) / Math.max(of[0], 1);
  const after = (100 * counts[1]) / Math.max(of[1], 1);
  const one = (counts[0] + 1) / (of[0] + 2);
  const other = (counts[1] + 1) / (of[1] + 2);
  const variance = (one * (1 - one)) / (of[0] + 2) + (other * (1 - other)) / (of[1] + 2);
  const noise = 100 * Z_95 * Math.sqrt(variance);
  return { before, after, points: after - before, noise, isBeyondNoise: 100 * Math.abs(other - one) > noise };
}

/** Which way it went: "more", "less", or "noise" where that may be chance. */
function directionOf(/** @type {Change} */ { points, isBeyondNoise }) {
  if (!isBeyondNoise) return "noise";
  return points > 0 ? "more" : "less";
}

/** What stands before a number or a name, so that no direction is told by colour alone. */
const MARKS = { more: "▲", less: "▼", noise: "≈" };

const DIRECTIONS = { more: "more than noise", less: "more than noise", noise: "within noise" };

/** `+1.20`, with the sign that a minus has in print. */
function pointsText(/** @type {number} */ points) {
  const text = points.toFixed(2);
  if (Number(text) === 0) return "0.00";
  return text.startsWith("-") ? `−${text.slice(1)}` : `+${text}`;
}

/** `▲ +1.20 ±0.40`. */
function changeText(/** @type {Change} */ change) {
  return `${MARKS[directionOf(change)]} ${pointsText(change.points)} ±${change.noise.toFixed(2)}`;
}

/** On which side alone there are samples, if on one alone. */
function onlySide(/** @type {number[]} */ [before, after]) {
  if (before === 0 && after > 0) return "only after";
  return before > 0 && after === 0 ? "only before" : "";
}
