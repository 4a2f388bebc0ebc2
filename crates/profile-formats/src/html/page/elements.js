// Creates DOM elements and formats numbers. Text never becomes markup.

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | EventListener>} attributes `onclick` and others are listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
function createElement(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") created.addEventListener(name.slice(2), value);
    else if (value === true) created.setAttribute(name, "");
    else if (value !== false) created.setAttribute(name, String(value));
  }
  created.append(...children);
  return created;
}

/** Isolates a name of the profile, so that right-to-left characters in it do not reorder the surrounding text. */
function createNameElement(/** @type {string} */ name) {
  return createElement("bdi", { class: "name" }, name);
}

/** @returns {any} because the type of the element depends on the id */
function getElement(/** @type {string} */ id) {
  return document.getElementById(id);
}

const NUMBER_FORMAT = new Intl.NumberFormat("en");

const SHORT_NUMBER_FORMAT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Whether the values of the selected event are nanoseconds and not numbers of samples. */
let areValuesTimes = false;

function setValuesAreTimes(/** @type {boolean} */ areTimes) {
  areValuesTimes = areTimes;
}

function formatValue(value) {
  return areValuesTimes ? formatDuration(value) : NUMBER_FORMAT.format(value);
}

function formatShortValue(value) {
  return areValuesTimes || value < 1e6 ? formatValue(value) : SHORT_NUMBER_FORMAT.format(value);
}

/** Formats a value with its unit. */
function formatValueAndUnit(value) {
  return areValuesTimes ? formatDuration(value) : formatSampleCount(value);
}

function formatSampleCount(count) {
  return `${NUMBER_FORMAT.format(count)} ${count === 1 ? "sample" : "samples"}`;
}

function formatDuration(ns) {
  const [unit, unitNs] = [["s", 1e9], ["ms", 1e6], ["us", 1e3]].find((candidate) => ns >= candidate[1]) ?? ["ns", 1];
  return `${NUMBER_FORMAT.format(Number((ns / unitNs).toPrecision(4)))} ${unit}`;
}

function formatPercent(count, total) {
  const share = total > 0 ? (100 * count) / total : 0;
  return `${share.toFixed(share > 0 && share < 1 ? 2 : 1)} %`;
}

function formatSeconds(seconds) {
  return `${seconds.toFixed(2)} s`;
}
