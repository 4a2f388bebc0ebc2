// Tests the page of a difference by user input, and compares its numbers with those of the library.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, beforeEach, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { colourOf, focusedBox, searchFor, tableRows } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());
beforeEach(() => browser.open(page("changed.html")));

const ROW_PX = 18;

/** The middle of the row below the boxes `all`, process name and `main`. */
const CALLED_BY_MAIN_Y = 3.5 * ROW_PX;

/** Descriptions of the boxes below `main`, from left to right. */
async function calledByMain() {
  await browser.evaluate("document.getElementById('flame').focus()");
  await browser.press("Home");
  for (const _ of "123") await browser.press("ArrowDown");
  const boxes = [await focusedBox(browser)];
  for (;;) {
    await browser.press("ArrowRight");
    const next = await focusedBox(browser);
    if (next === boxes.at(-1)) return boxes;
    boxes.push(next);
  }
}

const rowOf = async (name) => (await tableRows(browser)).find((row) => row.at(-1) === name);

/** The text of a cell with a change. */
const verdictOf = (name) =>
  browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")]
    .find((row) => row.querySelector(".name button").title === "${name}").querySelector("td[title]").title`);

test("the header describes both profiles, the page loads nothing, and there are no times", async () => {
  assert.equal(await browser.text("target"), "On-CPU: pid 7 (app), before and after");
  const sides = await browser.evaluate("[...document.querySelectorAll('#facts p')].map(({ textContent }) => textContent)");
  assert.match(sides[0], /^before · cpu-clock at 100 Hz on 2 CPUs · 10\.0 s · .* · 1,000 samples · 0 lost$/);
  assert.match(sides[1], /^after · .* · 2,000 samples · 0 lost$/);
  assert.equal(await browser.evaluate("document.getElementById('time').hidden"), true);
  await browser.press("?");
  assert.doesNotMatch(await browser.text("keys"), /heat map/);
  await browser.press("Escape");
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("difference");
});

test("the largest change is first and exceeds noise, unchanged functions do not", async () => {
  assert.deepEqual((await tableRows(browser))[0], ["30.00 %", "50.00 %", "▲ +20.00", "▲ +20.00", "parse"]);
  assert.equal(await verdictOf("parse"), "more than noise");
  assert.deepEqual(await rowOf("idle"), ["5.00 %", "4.80 %", "≈ −0.20", "≈ −0.20", "idle"]);
  assert.equal(await verdictOf("idle"), "within noise");
});

test("functions of one side alone are listed and marked", async () => {
  assert.deepEqual(await rowOf("old"), ["0.00 %", "0.00 %", "≈ 0.00", "▼ −10.00", "old"]);
  assert.deepEqual(await rowOf("new"), ["0.00 %", "0.00 %", "≈ 0.00", "▲ +8.00", "new"]);
  const boxes = await calledByMain();
  assert.equal(boxes.length, 5);
  const gone = boxes.find((box) => box.startsWith("old"));
  assert.match(gone, /^old, before 10\.00 %, after 0\.00 %, ▼ −10\.00 ±1\.\d\d points: more than noise, native$/);
  assert.match(await browser.text("details"), /before 0\.00 % \(0\) · after 8\.00 % \(160\).*only after.*self: no samples/);
});

test("a box shows both shares, the difference and the noise; a click zooms and Escape goes back", async () => {
  await browser.point("#flame", [20, CALLED_BY_MAIN_Y]);
  await browser.until("document.querySelector('#details .title')");
  const said = "before 55.00 % (550) · after 37.20 % (744) · ▼ −17.80 ±3.74 points · more than noise";
  const details = await browser.text("details");
  assert.ok(details.startsWith(`readtotal: ${said}self: ${said}native · /app/run`), details);
  await browser.point("#flame", [20, CALLED_BY_MAIN_Y], [20, CALLED_BY_MAIN_Y]);
  assert.match(await browser.text("breadcrumbs"), /all.*app.*main.*read$/);
  // Shares are those of the whole run, also while the graph is zoomed.
  assert.deepEqual(await tableRows(browser), [["55.00 %", "37.20 %", "▼ −17.80", "▼ −17.80", "read"]]);
  await browser.press("Escape");
  assert.equal(await browser.text("breadcrumbs"), "all");
});

test("widths are those of both sides, or of one", async () => {
  await browser.press("b");
  assert.equal(await browser.text("spoken"), "widths: before");
  const names = (boxes) => boxes.map((box) => box.split(",")[0]);
  assert.deepEqual(names(await calledByMain()), ["read", "parse", "old", "idle"]);
  await browser.press("b");
  assert.equal(await browser.text("spoken"), "widths: after");
  assert.deepEqual(names(await calledByMain()), ["parse", "read", "new", "idle"]);
  assert.deepEqual(await rowOf("old"), ["0.00 %", "0.00 %", "≈ 0.00", "▼ −10.00", "old"]);
});

test("a graph zoomed to a function of one side returns to a common ancestor for the other side", async () => {
  await browser.press("b");
  await calledByMain();
  await browser.press("ArrowLeft");
  assert.match(await focusedBox(browser), /^old/);
  await browser.press("Enter");
  await browser.press("b");
  assert.match(await browser.text("breadcrumbs"), /main$/);
});

test("directions have different colours in both themes, and marks", async () => {
  const colours = async () => {
    const width = await browser.evaluate("document.getElementById('flame').clientWidth");
    // From left to right: read, parse, old, idle, new.
    const middles = [0.23, 0.66, 0.885];
    return Promise.all(middles.map((part) => colourOf(browser, "flame", width * part, CALLED_BY_MAIN_Y + 7)));
  };
  const light = await colours();
  const [less, more, gone] = light.map((colour) => colour.split(" ").map(Number));
  assert.ok(less[2] > less[0] && gone[2] > gone[0] && more[0] > more[2], light.join(", "));
  assert.ok(gone[0] < less[0], "what is gone is stronger than what is less");
  await browser.press("d");
  await browser.picture("difference-dark");
  assert.ok((await colours()).every((colour, at) => colour !== light[at]));
  assert.match(await browser.text("legend"), /▲ more after.*▼ less after.*≈ within noise/);
});

test("the search shows the matching shares, and callers and callees have both sides", async () => {
  await searchFor(browser, "^(parse|read)$");
  assert.match(await browser.text("matched"), /^before 85\.00 %, after 87\.20 %, ≈ \+2\.20 ±2\.\d\d points: within noise, 2 functions$/);
  await browser.picture("difference-search");
  await searchFor(browser, "leaf");
  await browser.click("#functions tbody tr");
  assert.match(await browser.text("middle"), /^leafbefore 10\.00 %, after 8\.00 %, ≈ −2\.00 ±2\.\d\d points: within noise$/);
  await browser.evaluate("document.getElementById('callers').focus()");
  const callers = [];
  await browser.press("ArrowUp");
  callers.push(await focusedBox(browser, "callers"));
  await browser.press("ArrowRight");
  callers.push(await focusedBox(browser, "callers"));
  assert.match(callers.join("\n"), /^old, before 10\.00 %, after 0\.00 %.*\nnew, before 0\.00 %, after 8\.00 %/);
  await browser.picture("difference-sandwich");
});

test("the ledgers of both runs are shown", async () => {
  await browser.press("l");
  const ledger = await browser.text("view-ledger");
  assert.match(ledger, /Ledger before.*samples in this profile1,000100\.0 %.*Ledger after.*samples in this profile2,000100\.0 %/);
  await browser.picture("difference-ledger");
});

test("identical profiles have no differences", async () => {
  await browser.open(page("same.html"));
  for (const [, , own, total] of await tableRows(browser)) assert.deepEqual([own, total], ["≈ 0.00", "≈ 0.00"]);
  for (const box of await calledByMain()) assert.match(box, /≈ 0\.00 ±\d+\.\d\d points: within noise/);
});

test("a side without samples is marked as empty, and no change exceeds noise", async () => {
  const keys = ["b", "ArrowDown", "Enter", "s", "Escape", "l", "b", "f", "0", "t", "o", "i"];
  for (const [name, message] of [
    ["empty-before.html", /^before: No sample was taken: [^·]*$/],
    ["empty-after.html", /^after: No sample was taken: [^·]*$/],
    ["empty-both.html", /^before: .* · after: No sample was taken/],
  ]) {
    await browser.open(page(name));
    assert.match(await browser.text("message"), message);
    assert.match(await browser.text("target"), /^(On-CPU: pid 7 \(app\)|Profile), before and after$/);
    assert.ok((await tableRows(browser)).every((row) => row[2].startsWith("≈")));
    for (const key of keys) await browser.press(key);
    assert.deepEqual(browser.complaints(), [], name);
  }
});

test("names are shown as text, and the numbers of each function are those of the library", async () => {
  await browser.open(page("hostile-difference.html"));
  assert.equal(await browser.evaluate("document.images.length + document.querySelectorAll('[onclick]').length"), 0);
  const expected = JSON.parse(readFileSync(page("hostile-difference.json"), "utf8"));
  const shown = await browser.evaluate(`[...document.querySelectorAll("#functions tbody tr")].map((row) =>
    [...row.cells].slice(0, 4).map((cell) => [cell.textContent.replaceAll("−", "-"), cell.title]))`);
  const numbers = (text) => text.match(/-?\d+\.\d\d/g).map(Number);
  const isNear = (one, other) => one.length === other.length && one.every((number, at) => Math.abs(number - other[at]) < 0.0051);
  assert.equal(shown.length, expected.length);
  for (const [[before], [after], [own, isBeyond], [total, isBeyondInAll]] of shown) {
    const found = [...numbers(before), ...numbers(after), ...numbers(own)];
    const verdicts = [isBeyond, isBeyondInAll].map((title) => title === "more than noise");
    const is = (row) => isNear(found, row.self) && isNear(numbers(total), row.total) && String(row.beyond) === String(verdicts);
    const at = expected.findIndex(is);
    assert.ok(at >= 0, `${found} ${total}`);
    expected.splice(at, 1);
  }
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("difference-hostile");
});

test("50,000 stacks on each side are shown", async () => {
  await browser.open(page("large-difference.html"));
  await browser.picture("difference-large");
});
