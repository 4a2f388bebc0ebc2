// Tests the wakers beside callers and callees.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { focusedBox } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("wakers.html")));

const showFunction = (name) =>
  browser.evaluate(`[...document.querySelectorAll("#functions button")].find(({ title }) => title === "${name}").click()`);

/** The rows of a table: share and time, thread, and full names of the functions. */
const rowsOf = (table) =>
  browser.evaluate(`[...document.querySelectorAll('#wakes table[aria-label="${table}"] tbody tr')].map(({ cells }) =>
    [cells[0].textContent, cells[1].textContent, ...[...cells[2].querySelectorAll("button")].map((button) => button.ariaLabel)])`);

/** Descriptions of the boxes from the root of a graph to its end, always into the widest one. */
async function boxesOf(graph, key) {
  await browser.evaluate(`document.getElementById("${graph}").focus()`);
  const boxes = [await focusedBox(browser, graph)];
  for (;;) {
    await browser.press(key);
    const next = await focusedBox(browser, graph);
    if (next === boxes.at(-1)) return boxes.map((box) => box.split(",")[0]);
    boxes.push(next);
  }
}

test("the wakers of a function's waits are in a table, with their time and the names of their threads", async () => {
  await showFunction("serve");
  assert.deepEqual(await rowsOf("Woken by"), [
    ["50.0 %600 ms", "owner", "pthread_mutex_unlock", "holds_lock", "owner_loop"],
    ["25.0 %300 ms", "[interrupt]", "asm_sysvec_apic_timer_interrupt"],
  ]);
  assert.deepEqual(await rowsOf("Wakes"), []);
  assert.match(await browser.text("wakes"), /Wakes\s*It ended no wait\./);
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("wakers");
});

test("the frames of wakers are neither callers nor callees", async () => {
  await showFunction("serve");
  assert.match(await browser.text("middle"), /^serve900 ms, 75\.0 % of all$/);
  assert.deepEqual(await boxesOf("callees", "ArrowDown"), ["serve", "[lock]"]);
  assert.deepEqual(await boxesOf("callers", "ArrowUp"), ["serve", "main", "app"]);
});

test("the waits that a function ended are in a table, apart from its own waits", async () => {
  await showFunction("holds_lock");
  assert.match(await browser.text("middle"), /^holds_lock200 ms, 16\.7 % of all$/);
  assert.deepEqual(await boxesOf("callees", "ArrowDown"), ["holds_lock", "[sleep]"]);
  assert.match(await browser.text("wakes"), /Woken by\s*No waker of its waits is known\./);
  assert.deepEqual(await rowsOf("Wakes"), [
    ["50.0 %600 ms", "app", "[lock]", "serve", "main"],
    ["8.3 %100 ms", "app", "[wait]", "read_all", "main"],
  ]);
  await browser.picture("wakes");
});

test("a waker's name lists the waits that it ended, by the thread that waited if threads are separate", async () => {
  await showFunction("owner");
  for (const _ of "123") await browser.press("t");
  assert.equal(await browser.text("spoken"), "group by: thread");
  const rows = await rowsOf("Wakes");
  assert.deepEqual(rows.map((row) => row.slice(0, 2)), [["50.0 %600 ms", "thread 7 (app)"], ["8.3 %100 ms", "thread 8 (worker)"]]);
  assert.match(await browser.text("middle"), /^owner0 ns, 0\.0 % of all$/);
});

test("a function in a table shows its own callers, callees and wakers, also by key", async () => {
  await showFunction("holds_lock");
  await browser.evaluate(`document.querySelector('#wakes td button[aria-label="[lock]"]').focus()`);
  await browser.press("Enter");
  assert.match(await browser.text("middle"), /^\[lock\]900 ms/);
  assert.equal((await rowsOf("Woken by")).length, 2);
  await browser.press("Escape");
  assert.equal(await browser.evaluate("document.getElementById('view-flame').hidden"), false);
  assert.deepEqual(browser.complaints(), []);
});

test("a profile without wakers has no tables of them", async () => {
  await browser.open(page("lanes.html"));
  await showFunction("wait");
  assert.equal(await browser.evaluate("document.getElementById('wakes').hidden"), true);
});
