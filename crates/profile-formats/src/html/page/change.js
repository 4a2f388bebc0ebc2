// Computes the change of a share of samples and its confidence interval, as `difference/change.rs` does.

/**
 * @typedef {object} Change
 * @property {number} before share in percent
 * @property {number} after share in percent
 * @property {number} points after minus before, in percentage points
 * @property {number} noise half the width of the 95 % confidence interval, in percentage points
 * @property {boolean} isBeyondNoise
 */

/** 95 % of normally distributed values are within this number of standard deviations. */
const Z_95 = 1.96;

/**
 * The interval is that of Agresti and Caffo ("Simple and effective confidence intervals for proportions and differences
 * of proportions", The American Statistician 54, 2000): a success and a failure are added to each side.
 * @param {number[]} counts samples before and after
 * @param {number[]} totals all samples before and after
 * @param {number[]} samples the effective numbers of samples before and after: waits count as samples, not by their lengths
 * @returns {Change}
 */
export function computeChange(counts, totals, samples) {
  const before = (100 * counts[0]) / Math.max(totals[0], 1);
  const after = (100 * counts[1]) / Math.max(totals[1], 1);
  const [one, other] = counts.map(
    (count, side) => (count * (samples[side] / Math.max(totals[side], 1)) + 1) / (samples[side] + 2),
  );
  const variance = (one * (1 - one)) / (samples[0] + 2) + (other * (1 - other)) / (samples[1] + 2);
  const noise = 100 * Z_95 * Math.sqrt(variance);
  return { before, after, points: after - before, noise, isBeyondNoise: 100 * Math.abs(other - one) > noise };
}

/** Returns the direction of a change: "more", "less", or "noise" if the change is not significant. */
export function classifyChange(/** @type {Change} */ { points, isBeyondNoise }) {
  if (!isBeyondNoise) return "noise";
  return points > 0 ? "more" : "less";
}

/** Shown before a number or a name, so that directions differ without colours. */
export const DIRECTION_MARKS = { more: "▲", less: "▼", noise: "≈" };

export const DIRECTION_TEXTS = { more: "more than noise", less: "more than noise", noise: "within noise" };

/** Formats percentage points as `+1.20`, with U+2212 as minus sign. */
export function formatPoints(/** @type {number} */ points) {
  const text = points.toFixed(2);
  if (Number(text) === 0) return "0.00";
  return text.startsWith("-") ? `−${text.slice(1)}` : `+${text}`;
}

/** Formats a change as `▲ +1.20 ±0.40`. */
export function formatChange(/** @type {Change} */ change) {
  return `${DIRECTION_MARKS[classifyChange(change)]} ${formatPoints(change.points)} ±${change.noise.toFixed(2)}`;
}

/** Names the only side that has samples, or returns "". */
export function describeOnlySide(/** @type {number[]} */ [before, after]) {
  if (before === 0 && after > 0) return "only after";
  return before > 0 && after === 0 ? "only before" : "";
}
