// Tests the findings above the graphs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

/** @type {Browser} */
let browser;

const open = (name) => browser.open(join(process.env.PAGES, name));
const isHidden = () => browser.evaluate("document.getElementById('findings').hidden");

before(async () => {
  browser = await Browser.start();
});
after(() => browser.stop());

test("findings are text above the graphs", async () => {
  await open("findings.html");
  assert.equal(await isHidden(), false);
  assert.equal(await browser.text("findings"), "3 of 4 workers block in <b> A.B</b>: make A.B asynchronous");
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("findings");
});

test("a profile without findings has no place for them", async () => {
  await open("known.html");
  assert.equal(await isHidden(), true);
});
