// Helpers that read parts of the page and measure how long it takes to open.

import assert from "node:assert/strict";

/** Description of the graph's focused box. */
export const focusedBox = (browser, graph = "flame") =>
  browser.evaluate(`(() => {
    const id = document.getElementById("${graph}").getAttribute("aria-activedescendant");
    return document.getElementById(id)?.textContent;
  })()`);

/** The first rows of the table: numbers and full name. */
export const tableRows = (browser, count = 8) =>
  browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")].slice(0, ${count}).map((row) =>
    [...row.querySelectorAll(".share, .name button")].map((cell) => cell.title || cell.textContent))`);

/** The colour of a pixel in a graph, as red, green and blue. */
export const colourOf = (browser, graph, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const canvas = document.querySelector("#${graph} canvas");
    return [...canvas.getContext("2d").getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data].slice(0, 3).join(" ");
  })()`);

/** The state whose colour a pixel of a canvas has, or null. */
export const stateOfPixel = (browser, holder, x, y) =>
  browser.evaluate(`(async () => {
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    const canvas = document.querySelector("#${holder} canvas");
    const pixel = canvas.getContext("2d").getImageData(${x} * devicePixelRatio, ${y} * devicePixelRatio, 1, 1).data;
    const colour = (state) => {
      const probe = document.body.appendChild(document.createElement("span"));
      probe.style.color = "var(--" + state + ")";
      const text = getComputedStyle(probe).color;
      probe.remove();
      return text;
    };
    const found = "rgb(" + [...pixel].slice(0, 3).join(", ") + ")";
    return ["on-cpu", "runnable", "throttled", "blocked", "disk", "stopped"].find((state) => colour(state) === found) ?? null;
  })()`);

export const searchFor = (browser, text) =>
  browser.evaluate(`(() => {
    const input = document.getElementById("pattern");
    input.value = ${JSON.stringify(text)};
    input.dispatchEvent(new Event("input"));
  })()`);

/** The maximum number of times a page is opened to measure its shortest time. */
const OPENINGS = 6;

/** The longest time to the first picture, in times of the reference computation. */
const MAX_REFERENCES = 1.5;

/** Allocates, serializes, parses and sorts a million objects: about a second of the work that opening a page is made of. */
const REFERENCE = `(() => {
  const start = performance.now();
  const objects = Array.from({ length: 1e6 }, (_, index) => ({ key: (index * 7919) % 1000003 }));
  JSON.parse(JSON.stringify(objects)).sort((one, other) => one.key - other.key);
  return performance.now() - start;
})()`;

/**
 * Checks the time to the first picture of a page, without the part in which other processes had the page's CPU, relative
 * to a reference computation in the same process: neighbours on the same machine slow down memory for both. CPU time
 * alone would not include waits for the file or for a timer. One opening in time is enough.
 */
export async function assertShownInTime(browser, path, what) {
  const openings = [];
  while (openings.length < OPENINGS && !openings.some(({ references }) => references < MAX_REFERENCES)) {
    const { shownMs, cpuMs } = await browser.costOfOpening(path);
    const referenceMs = await browser.evaluate(REFERENCE);
    openings.push({ shownMs, cpuMs, references: Math.max(shownMs, cpuMs) / referenceMs });
  }
  const texts = openings.map(({ shownMs, cpuMs, references }) => {
    return `shown after ${shownMs.toFixed(0)} ms, ${cpuMs.toFixed(0)} ms of CPU, ${references.toFixed(2)} references`;
  });
  console.log(`${what}: ${texts.join("; ")}`);
  assert.ok(openings.at(-1).references < MAX_REFERENCES, texts.join("; "));
}
