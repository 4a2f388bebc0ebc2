// What is seen of the page's parts, and how soon.

import assert from "node:assert/strict";

/** The graph's box with the focus, in words. */
export const focusedBox = (browser, graph = "flame") =>
  browser.evaluate(`(() => {
    const id = document.getElementById("${graph}").getAttribute("aria-activedescendant");
    return document.getElementById(id)?.textContent;
  })()`);

/** The first rows of the table: the numbers, and the whole name. */
export const tableRows = (browser, count = 8) =>
  browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")].slice(0, ${count}).map((row) =>
    [...row.querySelectorAll(".share, .name button")].map((cell) => cell.title || cell.textContent))`);

/** The colour of a place in a graph, as red, green and blue. */
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

/**
 * Checks that a page is shown within a second. What a person waits for is the time to the first picture. CPU time alone
 * would not see the page wait for its file or for a timer, and wall time alone is longer whenever somebody else compiles:
 * it is wall time without the part in which others had the page's CPU. The best of three openings counts, since others
 * slow down caches and the disk, too.
 */
export async function assertShownWithinASecond(browser, path, what) {
  const costs = [];
  for (const _ of "123") costs.push(await browser.costOfOpening(path));
  const { cpuMs, shownMs } = costs.reduce((one, other) => (one.shownMs < other.shownMs ? one : other));
  const text = `${what}: shown after ${shownMs.toFixed(0)} ms, ${cpuMs.toFixed(0)} ms of CPU`;
  console.log(text);
  assert.ok(shownMs < 1000 && cpuMs < 1000, text);
}
