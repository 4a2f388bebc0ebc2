// Shows the header and the ledger of each profile: target, event, duration, lost samples, unsymbolized frames.

import {
  createElement,
  createNameElement,
  formatDuration,
  formatSampleCount,
  getElement,
  NUMBER_FORMAT,
} from "./elements.js";

/** @import { Measurement } from "./document.js" */

/** Shows the header and the ledger, and why profiles are empty. */
export function showHeader(/** @type {Measurement[]} */ measurements, /** @type {number[]} */ samples) {
  const title = formatTitle(measurements);
  document.title = title;
  getElement("target").replaceChildren(createNameElement(title));
  getElement("facts").replaceChildren(...createFacts(measurements, samples));
  getElement("view-ledger").replaceChildren(...createLedgers(measurements));
  getElement("message").textContent = explainEmptyProfiles(measurements, samples);
  getElement("message").hidden = getElement("message").textContent === "";
}

/** The title of the page. */
function formatTitle(/** @type {Measurement[]} */ measurements) {
  const [target, other] = new Set(measurements.map((measurement) => measurement.target).filter(Boolean));
  const [{ shown }] = measurements;
  if (other) return `${shown}: ${other}, compared with ${target}`;
  const name = target ? `${shown}: ${target}` : "Profile";
  return measurements.length > 1 ? `${name}, before and after` : name;
}

/** The names of the two profiles of a difference. */
export const SIDE_NAMES = ["before", "after"];

/** Creates a line of facts for each profile. */
function createFacts(/** @type {Measurement[]} */ measurements, /** @type {number[]} */ samples) {
  const hasOneTarget = measurements.every(({ target }) => target === measurements[0].target);
  const describeSide = ({ target }, side) =>
    measurements.length > 1 ? [SIDE_NAMES[side], hasOneTarget ? "" : target] : [];
  const formatLine = (measurement, side) =>
    [...describeSide(measurement, side), formatFacts(measurement, samples[side])].filter(Boolean).join(" · ");
  return measurements.map((measurement, side) =>
    createElement("p", {}, createNameElement(formatLine(measurement, side))),
  );
}

/** Names the empty profiles and the reason of each, or returns "". */
function explainEmptyProfiles(/** @type {Measurement[]} */ measurements, /** @type {number[]} */ samples) {
  const explain = (measurement, side) => {
    const why = explainEmptyProfile(measurement, samples[side]);
    return why && measurements.length > 1 ? `${SIDE_NAMES[side]}: ${why}` : why;
  };
  return measurements.map(explain).filter(Boolean).join(" · ");
}

function formatFacts(/** @type {Measurement} */ measurement, /** @type {number} */ samples) {
  const facts = [];
  if (measurement.event) {
    const cpus = measurement.cpus === 1 ? "1 CPU" : `${measurement.cpus} CPUs`;
    facts.push(`${measurement.event_text} on ${cpus}`);
    facts.push(`${(measurement.duration_ns / 1e9).toFixed(1)} s`);
  }
  if (measurement.started_unix_ms) facts.push(new Date(measurement.started_unix_ms).toLocaleString());
  const { edits, reported, lost, unit_ns: unitNs } = measurement;
  if (unitNs > 0) {
    facts.push(formatDuration(samples), formatSampleCount(reported), ...(edits ? [`shown: ${edits}`] : []));
  } else {
    const shownSamples = `${NUMBER_FORMAT.format(samples)} of ${formatSampleCount(reported)}: ${edits}`;
    facts.push(edits ? shownSamples : formatSampleCount(samples));
  }
  facts.push(`${NUMBER_FORMAT.format(lost)} lost`);
  return facts.join(" · ");
}

/** The reason why a profile is empty, or "". */
function explainEmptyProfile(/** @type {Measurement} */ { edits, why_empty: why }, /** @type {number} */ samples) {
  if (samples > 0) return "";
  if (edits && !why) return `No sample is left: ${edits}`;
  return `No sample was taken${why && `: ${why}`}`;
}

/** Creates the tables of the ledger; the ledgers of a difference are side by side. */
function createLedgers(/** @type {Measurement[]} */ measurements) {
  const tables = measurements.map(({ ledger }) => ledger.map(createLedgerTable));
  if (measurements.length === 1) return tables[0];
  const createSide = (name, side) =>
    createElement("div", {}, createElement("h2", {}, `Ledger ${name}`), ...tables[side]);
  return SIDE_NAMES.map(createSide);
}

function createLedgerTable({ title, rows }) {
  return createElement(
    "table",
    {},
    createElement("caption", {}, title),
    createElement("tbody", {}, ...rows.map(createLedgerRow)),
  );
}

function createLedgerRow({ what, amount, share, remedy }) {
  const advice = remedy ? [createElement("p", { class: "remedy" }, "→ ", createNameElement(remedy))] : [];
  return createElement(
    "tr",
    {},
    createElement("th", { scope: "row" }, createNameElement(what), ...advice),
    createElement("td", { class: "number" }, typeof amount === "number" ? NUMBER_FORMAT.format(amount) : amount),
    createElement("td", { class: "number" }, share),
  );
}
