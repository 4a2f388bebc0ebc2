// Tests the page of a .NET process whose method Alpha takes three fifths of the CPU time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { join } from "node:path";

import { Browser } from "./browser.mjs";

test("the page of a real process names its methods, with their shares, and accounts for all samples", async (test) => {
  const browser = await Browser.start();
  // Also after a failure: node waits for the browser.
  test.after(() => browser.stop());
  await browser.open(join(process.env.PAGES, "dotnet.html"));
  assert.match(await browser.text("target"), /^On-CPU: pid \d+ \(dotnet\)$/);
  assert.match(await browser.text("facts"), /cpu-clock at 499 Hz .* samples · 0 lost$/);
  assert.match(await browser.text("legend"), /JIT.*native/);
  await browser.press("/");
  await browser.type("Workload.Cpu.Alpha");
  const [, percent] = (await browser.text("matched")).match(/^([\d.]+) % of samples, 1 function$/);
  assert.ok(percent > 40 && percent < 75, percent);
  await browser.press("Enter");
  assert.match(await browser.text("details"), /app!Workload\.Cpu\.Alpha\(\).*JIT · symbolized by runtime memory/);
  await browser.press("l");
  assert.match(await browser.text("view-ledger"), /samples in this profile[\d,]+100\.0 %/);
  assert.deepEqual(browser.complaints(), []);
  await browser.picture("dotnet");
});
