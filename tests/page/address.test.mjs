// Tests that the address of the page has the view, so that it can be shared, and that the page begins with that view.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";
import { searchFor, tableRows } from "./parts.mjs";

/** @type {Browser} */
let browser;

const page = (name) => join(process.env.PAGES, name);
const hash = () => browser.evaluate("location.hash");
const valueOf = (id) => browser.evaluate(`document.getElementById('${id}').value`);
const selectedTab = () => browser.evaluate("document.querySelector('[role=tab][aria-selected=true]').id");

/** Opens a page anew with what is behind `#` now. */
const openAgain = async (name) => {
  const view = await hash();
  await browser.call("Page.navigate", { url: "about:blank" });
  await browser.open(page(name) + view);
};

/** What the page shows of a view. */
const shownView = async () => ({
  target: await browser.text("target"),
  selected: await browser.text("selected"),
  state: await valueOf("state"),
  pattern: await valueOf("pattern"),
  roots: await valueOf("roots"),
  breadcrumbs: await browser.text("breadcrumbs"),
  matched: await browser.text("matched"),
  tab: await selectedTab(),
  middle: await browser.text("middle"),
  rows: await tableRows(browser),
});

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());

test("a page that shows what it began with has no view in its address", async () => {
  await browser.open(page("known.html"));
  await searchFor(browser, "main");
  await browser.until("location.hash === '#search=main'");
  await searchFor(browser, "");
  await browser.until("location.hash === ''");
});

test("a page begins with the view of its address: search, grouping, zoom and time", async () => {
  await browser.open(page("known.html"));
  await browser.press("t");
  await searchFor(browser, "Hot.cs");
  await browser.press("n");
  await browser.press("Enter");
  await browser.evaluate(`(() => {
    document.getElementById("from").value = "1";
    document.getElementById("from").dispatchEvent(new Event("change"));
  })()`);
  await browser.until("['search', 'zoom', 'roots', 'range'].every((key) => location.hash.includes(key + '='))");
  const shown = await shownView();
  assert.match(shown.selected, /^1\.00 s to /);
  assert.notEqual(shown.breadcrumbs, "all");
  await openAgain("known.html");
  assert.deepEqual(await shownView(), shown);
  assert.deepEqual(browser.complaints(), []);
});

test("a page begins with the view of its address: callers and callees of a function", async () => {
  await browser.open(page("known.html"));
  await browser.evaluate("document.querySelector('#functions tbody tr:nth-child(2)').click()");
  await browser.until("location.hash.includes('tab=sandwich')");
  const shown = await shownView();
  assert.equal(shown.tab, "tab-sandwich");
  await openAgain("known.html");
  assert.deepEqual(await shownView(), shown);
});

test("a page begins with the view of its address: event, state and threads of a finding", async () => {
  await browser.open(page("findings.html"));
  await browser.press("e");
  await browser.evaluate("document.querySelector('#findings button').click()");
  await browser.until("['range', 'threads', 'search'].every((key) => location.hash.includes(key + '='))");
  const shown = await shownView();
  await openAgain("findings.html");
  assert.deepEqual(await shownView(), shown);
  assert.equal(await browser.evaluate("document.getElementById('all-threads').hidden"), false);
});

test("another address in the same page is another view", async () => {
  await browser.open(page("events.html"));
  assert.equal(await browser.text("target"), "Waiting: pid 7 (app)");
  await browser.evaluate("void (location.hash = '#event=cpu-clock&tab=ledger')");
  await browser.until("document.getElementById('target').textContent.startsWith('On-CPU')");
  assert.equal(await selectedTab(), "tab-ledger");
  await browser.evaluate("void (location.hash = '')");
  await browser.until("document.getElementById('target').textContent.startsWith('Waiting')");
  assert.equal(await selectedTab(), "tab-flame");
});

test("what the profile does not have is left out of the view", async () => {
  const view = "#event=none&state=x&threads=1.2&range=5.900000&roots=x&zoom=99.x.-1&tab=x&function=999999&order=name";
  await browser.open(page("known.html"));
  const shown = { ...(await shownView()), pattern: "(zz", matched: "0.0 % of samples, 0 functions, taken as text" };
  await browser.call("Page.navigate", { url: "about:blank" });
  await browser.open(`${page("known.html")}${view}&search=(zz`);
  const { rows, ...found } = await shownView();
  assert.deepEqual(rows, []);
  assert.deepEqual({ ...found, rows: shown.rows }, shown);
  assert.equal(await valueOf("order"), "name");
  assert.deepEqual(browser.complaints(), []);
});
