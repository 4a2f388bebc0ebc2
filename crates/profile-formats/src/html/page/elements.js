// Creates DOM elements and formats numbers. Text never becomes markup.

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | EventListener>} attributes `onclick` and others are listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function createElement(tag, attributes = {}, ...children) {
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
export function createNameElement(/** @type {string} */ name) {
  return createElement("bdi", { class: "name" }, name);
}

/** @returns {any} because the type of the element depends on the id */
export function getElement(/** @type {string} */ id) {
  return document.getElementById(id);
}

/** Sends a text to screen readers. */
export function announce(/** @type {string} */ text) {
  getElement("spoken").textContent = text;
}

export const NUMBER_FORMAT = new Intl.NumberFormat("en");

const SHORT_NUMBER_FORMAT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Whether the values of the selected event are nanoseconds and not numbers of samples. */
export let areValuesTimes = false;

export function setValuesAreTimes(/** @type {boolean} */ areTimes) {
  areValuesTimes = areTimes;
}

export function formatValue(value) {
  return areValuesTimes ? formatDuration(value) : NUMBER_FORMAT.format(value);
}

export function formatShortValue(value) {
  return areValuesTimes || value < 1e6 ? formatValue(value) : SHORT_NUMBER_FORMAT.format(value);
}

/** Formats a value with its unit. */
export function formatValueAndUnit(value) {
  return areValuesTimes ? formatDuration(value) : formatSampleCount(value);
}

export function formatSampleCount(count) {
  return `${NUMBER_FORMAT.format(count)} ${count === 1 ? "sample" : "samples"}`;
}

export function formatDuration(/** @type {number} */ ns) {
  const units = { s: 1e9, ms: 1e6, us: 1e3 };
  const [unit, unitNs] = Object.entries(units).find((candidate) => ns >= candidate[1]) ?? ["ns", 1];
  return `${NUMBER_FORMAT.format(Number((ns / unitNs).toPrecision(4)))} ${unit}`;
}

export function formatPercent(count, total) {
  const share = total > 0 ? (100 * count) / total : 0;
  return `${share.toFixed(share > 0 && share < 1 ? 2 : 1)} %`;
}

export function formatSeconds(seconds) {
  return `${seconds.toFixed(2)} s`;
}
