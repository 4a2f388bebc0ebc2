// Making elements: text is always text, a name stands for itself whatever direction it is written in.

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | EventListener>} attributes `onclick` and the like are listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children);
  return made;
}

/** A name out of the profile: isolated, so that it does not reorder what stands around it. */
function nameElement(/** @type {string} */ name) {
  return element("bdi", { class: "name" }, name);
}

/**
 * The element with an id; whoever asks knows of which kind it is.
 * @returns {any}
 */
function byId(/** @type {string} */ id) {
  return document.getElementById(id);
}

const NUMBER = new Intl.NumberFormat("en");

const SHORT_NUMBER = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Short enough for a column. */
function shortNumber(count) {
  return (count < 1e6 ? NUMBER : SHORT_NUMBER).format(count);
}

function sampleText(count) {
  return `${NUMBER.format(count)} ${count === 1 ? "sample" : "samples"}`;
}

function percentText(count, of) {
  const share = of > 0 ? (100 * count) / of : 0;
  return `${share.toFixed(share > 0 && share < 1 ? 2 : 1)} %`;
}

function secondsText(seconds) {
  return `${seconds.toFixed(2)} s`;
}
