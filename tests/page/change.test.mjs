// Tests the noise of a difference as the page computes it, with the numbers of the tests in `difference/change.rs`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { computeChange, formatChange } from "../../crates/profile-formats/src/html/page/change.js";

const changeOf = (counts, totals) => computeChange(counts, totals, totals);

const isBeyond = (before, of, after, ofAfter) => changeOf([before, after], [of, ofAfter]).isBeyondNoise;

test("a change is in percentage points of the total of each side", () => {
  const { before, after, points } = changeOf([10, 40], [100, 200]);
  assert.deepEqual([before, after, points], [10, 20, 10]);
  assert.equal(changeOf([0, 0], [0, 0]).points, 0);
});

test("the interval is that of Agresti and Caffo", () => {
  const expected = 100 * 1.96 * Math.sqrt((((8 / 12) * 4) / 12 + ((2 / 12) * 10) / 12) / 12);
  assert.ok(Math.abs(changeOf([7, 1], [10, 10]).noise - expected) < 1e-9);
  assert.ok(isBeyond(7, 10, 1, 10));
});

test("many samples make a change significant and few do not", () => {
  assert.ok(!isBeyond(0, 10, 1, 10));
  assert.ok(!isBeyond(10, 1000, 18, 1000));
  assert.ok(isBeyond(100, 10_000, 180, 10_000));
  assert.ok(!isBeyond(0, 0, 0, 0));
  assert.ok(!isBeyond(0, 0, 5, 5));
});

test("the text of a change has its direction, size and noise", () => {
  assert.equal(formatChange(changeOf([100, 300], [1000, 1000])), "▲ +20.00 ±3.40");
  assert.match(formatChange(changeOf([300, 100], [1000, 1000])), /^▼ −20\.00 ±/);
  assert.match(formatChange(changeOf([100, 101], [1000, 1000])), /^≈ \+0\.10 ±/);
  assert.match(formatChange(changeOf([1e6, 1e6 - 1], [1e9, 1e9])), /^≈ 0\.00 ±/);
});

test("a few long waits are few samples", () => {
  const change = (samples) => computeChange([10e9, 14e9], [20e9, 20e9], [samples, samples]);
  assert.ok(!change(10).isBeyondNoise && change(10).noise > 30);
  assert.ok(change(1000).isBeyondNoise);
});
