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

export const searchFor = (browser, text) =>
  browser.evaluate(`(() => {
    const input = document.getElementById("pattern");
    input.value = ${JSON.stringify(text)};
    input.dispatchEvent(new Event("input"));
  })()`);

/** The maximum number of times a page is opened to measure its shortest time. */
const OPENINGS = 6;

/**
 * Checks that a page is shown within a second: the time to the first picture, without the part in which other processes
 * had the page's CPU. CPU time alone would not include waits for the file or for a timer, and wall time alone depends on
 * the load of the machine. Other processes slow down caches and the other hardware thread of a core too, so one opening
 * within the second is enough.
 */
export async function assertShownWithinASecond(browser, path, what) {
  const costs = [];
  while (costs.length < OPENINGS && !costs.some(({ shownMs, cpuMs }) => Math.max(shownMs, cpuMs) < 1000)) {
    costs.push(await browser.costOfOpening(path));
  }
  const text = costs.map(({ shownMs, cpuMs }) => `shown after ${shownMs.toFixed(0)} ms, ${cpuMs.toFixed(0)} ms of CPU`);
  console.log(`${what}: ${text.join("; ")}`);
  assert.ok(Math.max(costs.at(-1).shownMs, costs.at(-1).cpuMs) < 1000, text.join("; "));
}
