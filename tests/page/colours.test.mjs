// Tests the colours of the page: they differ for each kind of colour vision, and text has enough contrast.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const FOLDER = new URL("../../crates/profile-formats/src/html/page/", import.meta.url);
const read = (name) => readFileSync(new URL(name, FOLDER), "utf8");
const style = read("style.css");

/** The largest part of the background colour in a shade of a kind's colour. */
const FURTHEST_SHADE = Math.max(...JSON.parse(read("colours.js").match(/const SHADES = (.*);/)[1]));

/** A colour of the style sheet in a theme, blended with the panel's by a part, as linear RGB from 0 to 1. */
function colour(name, theme, part = 0) {
  const [of, panel] = [name, "panel"].map((each) => {
    const [, light, dark] = style.match(new RegExp(`--${each}: light-dark\\((#\\w{6}), (#\\w{6})\\)`));
    const text = theme === "light" ? light : dark;
    return [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16) / 255);
  });
  const channels = of.map((value, at) => value + (panel[at] - value) * part);
  return channels.map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
}

/** Simulates vision without one kind of cone (Machado, Oliveira and Fernandes, "A physiologically-based model for
 * simulation of color vision deficiency", IEEE Transactions on Visualization and Computer Graphics 15, 2009). */
const EYES = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const times = (matrix, vector) =>
  matrix.map((row) => Math.min(Math.max(row.reduce((sum, factor, at) => sum + factor * vector[at], 0), 0), 1));

/** CIE L*a*b* of linear sRGB, for daylight D65. */
function lab(linear) {
  const xyz = times([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], linear);
  const [x, y, z] = xyz.map((value, at) => Math.cbrt(Math.max(value / [0.9505, 1, 1.089][at], 0.008856)));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

const distance = (one, other) => Math.hypot(...lab(one).map((value, at) => value - lab(other)[at]));

/** The contrast ratio of WCAG 2.2, section 1.4.3. */
function contrast(one, other) {
  const luminance = ([red, green, blue]) => 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  const [darker, lighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return lighter / darker;
}

const PALETTES = {
  kinds: ["jit", "precompiled", "native", "inlined", "kernel", "unsymbolized"],
  changes: ["more", "less", "noise"],
  states: ["on-cpu", "runnable", "throttled", "blocked", "disk", "stopped"],
  events: ["suspension", "collection", "exception", "contention"],
};

/** The smallest visible difference of two adjacent areas is 2.3. */
const LEAST_DISTANCE = 10;

for (const theme of ["light", "dark"]) {
  for (const [palette, names] of Object.entries(PALETTES)) {
    test(`the colours of ${palette} differ for each kind of colour vision in the ${theme} theme`, () => {
      for (const [eyes, matrix] of Object.entries(EYES)) {
        const seen = names.map((name) => times(matrix, colour(name, theme)));
        names.forEach((name, at) =>
          names.slice(0, at).forEach((other, before) => {
            const apart = distance(seen[at], seen[before]);
            assert.ok(apart >= LEAST_DISTANCE, `${name} and ${other} are ${apart.toFixed(1)} apart with ${eyes}`);
          }),
        );
      }
    });
  }

  test(`text has enough contrast on all of its backgrounds in the ${theme} theme`, () => {
    const kinds = [...PALETTES.kinds, "root"].map((name) => ["box-text", name, FURTHEST_SHADE]);
    const changes = [...PALETTES.changes, ...PALETTES.states].map((name) => ["box-text", name, 0]);
    const panel = ["text", "faint", "accent", "more-text", "less-text"].map((name) => [name, "panel", 0]);
    for (const [text, background, part] of [...kinds, ...changes, ...panel]) {
      const found = contrast(colour(text, theme), colour(background, theme, part));
      assert.ok(found >= 4.5, `${text} on ${background}: ${found.toFixed(1)}`);
    }
  });
}
