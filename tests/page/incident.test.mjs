// Tests the first view of a profile that was kept for an incident.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("incident.html")));

const isHidden = (id) => browser.evaluate(`document.getElementById("${id}").hidden`);

/** The rows of the table: shares before and since, change, functions. */
const rows = () =>
  browser.evaluate(`[...document.querySelectorAll("#changes tbody tr")].map(({ cells }) =>
    [...cells].map((cell) => (cell.querySelector(".share") ?? cell).textContent))`);

const names = async () => (await rows()).map((row) => row.at(-1));

test("the page begins with what changed beyond noise, without functions in all stacks", async () => {
  assert.equal(await isHidden("incident"), false);
  assert.deepEqual(await rows(), [
    ["80.00 %", "20.00 %", "▼ −60.00", "parse"],
    ["10.00 %", "65.00 %", "▲ +55.00", "lock → futex_wait"],
  ]);
  const noise = await browser.evaluate("document.querySelector('#changes td .count').textContent");
  assert.match(noise, /^±6\.\d\d$/);
  assert.equal(
    await browser.text("incident-facts"),
    "before: 600 samples in 6.00 s (100 each second) · since: 200 samples in 4.00 s (50 each second)",
  );
  assert.match(await browser.text("findings"), /^incident at 8\.0 s: cpu < 60% for 2s \(cpu 50 %\)$/);
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("incident");
});

test("buttons select the time before the incident and the time since", async () => {
  await browser.click("#select-since");
  assert.match(await browser.text("selected"), /^6\.00 s to 10\.00 s: 200 samples/);
  await browser.click("#select-before");
  assert.match(await browser.text("selected"), /^0\.00 s to 6\.00 s: 600 samples/);
  assert.equal((await rows()).length, 2, "the comparison is that of both times");
  await browser.press("w");
  assert.match(await browser.text("selected"), /^whole time: 800 samples/);
});

test("a function of the table shows its callers and callees", async () => {
  await browser.click("#changes button[title=futex_wait]");
  assert.match(await browser.text("middle"), /^futex_wait190 samples/);
});

test("the comparison is collapsed and opened by key", async () => {
  const isOpen = () => browser.evaluate("document.querySelector('#incident details').open");
  await browser.evaluate("document.querySelector('#incident summary').focus()");
  await browser.press("Enter");
  assert.equal(await isOpen(), false);
  await browser.press("Enter");
  assert.equal(await isOpen(), true);
});

test("the shares of states are compared, and the chosen states alone", async () => {
  await browser.open(page("incident-of-waits.html"));
  assert.deepEqual(await rows(), [
    ["50.00 %", "0.00 %", "▼ −50.00", "on CPU"],
    ["50.00 %", "100.00 %", "▲ +50.00", "blocked"],
    ["0.00 %", "100.00 %", "▲ +100.00", "lock"],
    ["50.00 %", "0.00 %", "▼ −50.00", "work"],
    ["50.00 %", "0.00 %", "▼ −50.00", "wait"],
    ["50.00 %", "100.00 %", "▲ +50.00", "[wait]"],
  ]);
  await browser.picture("incident-of-waits");
  await browser.press("c");
  assert.match(await browser.text("incident-facts"), /^before: 3,000 samples in 6\.00 s .* since: 0 samples in 4\.00 s \(0 each second\)$/);
  await browser.press("c");
  assert.deepEqual(await names(), ["wait", "lock"]);
  assert.deepEqual(browser.complaints(), []);
});

test("a condition that held from the start leaves nothing to compare with", async () => {
  await browser.open(page("incident-from-the-start.html"));
  assert.match(await browser.text("incident-note"), /^The condition held from the start of the profile/);
  assert.equal(await isHidden("changes"), true);
  assert.equal(await browser.evaluate("document.getElementById('select-before').disabled"), true);
  await browser.click("#select-since");
  assert.match(await browser.text("selected"), /^whole time: 800 samples/);
});

test("a profile without an incident has no comparison", async () => {
  await browser.open(page("known.html"));
  assert.equal(await isHidden("incident"), true);
});
