// Tests the findings above the graphs: their text, and the selection of what shows them, with the pointer and with keys alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

/** @type {Browser} */
let browser;

const TEXT = "3 of 4 workers block in <b> A.B</b>: make A.B asynchronous";

const open = (name) => browser.open(join(process.env.PAGES, name));
const isHidden = (id) => browser.evaluate(`document.getElementById('${id}').hidden`);
const valueOf = (id) => browser.evaluate(`document.getElementById('${id}').value`);
const shownEvent = () => browser.evaluate("document.getElementById('event').selectedOptions[0].textContent");
const pressed = () =>
  browser.evaluate("[...document.querySelectorAll('#findings button')].map((button) => button.getAttribute('aria-pressed'))");

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());

test("findings are text above the graphs, and a button where they have facts", async () => {
  await open("findings.html");
  assert.equal(await isHidden("findings"), false);
  const lines = await browser.evaluate("[...document.querySelectorAll('#findings li')].map(({ textContent }) => textContent)");
  assert.deepEqual(lines, [TEXT, TEXT, TEXT]);
  const titles = await browser.evaluate("[...document.querySelectorAll('#findings button')].map(({ title }) => title)");
  assert.deepEqual(titles, [
    "likely: an adjustment of the thread pool (--events default) would prove it",
    "proven",
  ]);
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("findings");
});

test("the bullet of a finding of several lines is beside its first line", async () => {
  await open("findings.html");
  // A bullet has no box. Text in its place has its baseline.
  const [bullet, first, lines] = await browser.evaluate(`(() => {
    const item = document.querySelector("#findings li");
    item.style.width = "160px";
    const bullet = document.createElement("span");
    bullet.textContent = "x";
    bullet.style.cssText = "display: inline-block; width: 0";
    item.prepend(bullet);
    const range = document.createRange();
    range.selectNodeContents(item.querySelector("button"));
    const tops = [...new Set([...range.getClientRects()].map(({ bottom }) => Math.round(bottom)))];
    return [bullet.getBoundingClientRect().bottom, Math.min(...tops), tops.length];
  })()`);
  assert.ok(lines > 1, `${lines} lines`);
  assert.ok(Math.abs(bullet - first) < 4, `${bullet} and ${first}`);
});

test("a finding selects its event, time, threads and search", async () => {
  await open("findings.html");
  await browser.click("#findings li:first-child button");
  assert.equal(await shownEvent(), "wall");
  assert.deepEqual([await valueOf("from"), await valueOf("to")], ["1.00", "2.00"]);
  assert.match(await browser.text("selected"), /^1\.00 s to 2\.00 s: 50 samples/);
  assert.match(await browser.text("matched"), /^100\.0 % of samples, 1 function/);
  assert.equal(await isHidden("all-threads"), false);
  assert.deepEqual(await pressed(), ["true", "false"]);
  await browser.click("#all-threads");
  assert.match(await browser.text("selected"), /^1\.00 s to 2\.00 s: 100 samples/);
  assert.equal(await isHidden("all-threads"), true);
  assert.deepEqual(browser.complaints(), []);
});

test("a finding that is chosen again selects everything", async () => {
  await open("findings.html");
  const choose = () => browser.evaluate("document.querySelector('#findings button').click()");
  await choose();
  await choose();
  assert.match(await browser.text("selected"), /^whole time: 200 samples/);
  assert.deepEqual([await valueOf("pattern"), await isHidden("all-threads")], ["", true]);
  assert.deepEqual(await pressed(), ["false", "false"]);
});

test("a finding of runtime events shows them, by keys alone", async () => {
  await open("findings.html");
  await browser.evaluate("document.querySelectorAll('#findings button')[1].focus()");
  await browser.press("Enter");
  assert.equal(await isHidden("view-events"), false);
  assert.equal(await valueOf("event-filter"), "lock contention");
  assert.match(await browser.text("event-count"), /^1 of 2 events$/);
  assert.equal(await browser.evaluate("document.activeElement.getAttribute('aria-pressed')"), "true");
});

test("a profile without findings has no place for them", async () => {
  await open("known.html");
  assert.equal(await isHidden("findings"), true);
});
