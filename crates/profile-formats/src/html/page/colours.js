// Computes the colours of boxes from the colours of the style sheet.

import { classifyChange } from "./change.js";
import { BANDS, MARKS } from "./runtime_events.js";

/** @import { Change } from "./change.js" */
/** @import { Functions } from "./document.js" */

/** The labels of the kinds of code, in the order of the legend. */
export const KINDS = {
  jit: "JIT",
  precompiled: "managed, precompiled",
  native: "native",
  inlined: "inlined",
  kernel: "kernel",
  unsymbolized: "unsymbolized",
  wait: "cause of a wait",
};

/** The labels of the groups of causes of waits, in the order of the legend. */
export const WAIT_GROUPS = {
  lock: "lock",
  partner: "other threads",
  io: "input and output",
  cpu: "CPU",
  collection: "garbage collection",
  rest: "sleep, other",
};

/** The part of the background colour in boxes that do not match the search. */
const FADED_PART = 0.72;

/** The colours of the theme that are drawn on canvases. */
export class ThemeColours {
  constructor(/** @type {string[]} */ stateNames) {
    this.stateNames = stateNames;
    /** @type {number[]} */
    this.background = [];
    this.text = "";
    this.fadedText = "";
    this.outline = "";
    this.focus = "";
    /** @type {number[]} */
    this.heat = [];
    /** The colour of each state, by its index. @type {number[][]} */
    this.states = [];
    /** The colours of bands and marks. @type {Record<string, number[]>} */
    this.events = {};
  }

  /** Must be called when the theme changes. */
  readStyleColours() {
    this.background = readStyleColour("--panel");
    this.text = formatCssColour(readStyleColour("--box-text"));
    this.fadedText = formatCssColour(readStyleColour("--faint"));
    this.outline = formatCssColour(readStyleColour("--text"));
    this.focus = formatCssColour(readStyleColour("--focus"));
    this.heat = readStyleColour("--heat");
    this.states = this.stateNames.map((state) => readStyleColour(`--${state}`));
    this.events = {};
    for (const name of Object.values({ ...BANDS, ...MARKS })) this.events[name] = readStyleColour(`--${name}`);
  }
}

/** The name of the colour of a function: its kind, or the group of the cause of a wait. */
export function getSwatch(/** @type {Functions} */ { kind, waitGroup }, /** @type {number} */ functionIndex) {
  return kind[functionIndex] === "wait" ? `wait-${waitGroup[functionIndex]}` : kind[functionIndex];
}

/** The part of the background colour in each shade of a kind's colour. */
const SHADES = [0, 0.12, 0.24];

/** Colours boxes by kind of code, in several shades so that adjacent boxes differ. */
export class KindColours {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    /** @type {Record<string, Shade[]>} */
    this.boxes = {};
    this.shadeOf = Uint8Array.from(functions.name, (name) => {
      let sum = 0;
      for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
      return sum % SHADES.length;
    });
  }

  readStyleColours(/** @type {number[]} */ background) {
    this.boxes = {};
    const waits = Object.keys(WAIT_GROUPS).map((group) => `wait-${group}`);
    for (const kind of [...Object.keys(KINDS).filter((name) => name !== "wait"), ...waits, "root"]) {
      const colour = readStyleColour(`--${kind}`);
      this.boxes[kind] = SHADES.map((part) => createShade(blend(colour, background, part), background));
    }
  }

  getColour(functionIndex, isFaded) {
    const { plain, faded } = this.boxes[getSwatch(this.functions, functionIndex)][this.shadeOf[functionIndex]];
    return isFaded ? faded : plain;
  }
}

/** The smallest part of the direction's colour in the box of a significant change. */
const MIN_CHANGE_PART = 0.3;

const CHANGE_STEPS = 8;

/** Colours boxes by change: neutral within noise, else stronger the larger the added or removed part is. */
export class ChangeColours {
  constructor() {
    /** @type {Record<string, Shade[]>} */
    this.boxes = {};
  }

  readStyleColours(/** @type {number[]} */ background) {
    const same = readStyleColour("--noise");
    const steps = (/** @type {string} */ name) => {
      const colour = readStyleColour(name);
      const part = (step) => MIN_CHANGE_PART + ((1 - MIN_CHANGE_PART) * step) / (CHANGE_STEPS - 1);
      return Array.from({ length: CHANGE_STEPS }, (_, step) =>
        createShade(blend(same, colour, part(step)), background),
      );
    };
    this.boxes = { more: steps("--more"), less: steps("--less"), noise: [createShade(same, background)] };
  }

  getColour(/** @type {Change} */ change, isFaded) {
    const shades = this.boxes[classifyChange(change)];
    const part = Math.abs(change.points) / Math.max(change.before, change.after, Number.MIN_VALUE);
    const { plain, faded } = shades[Math.round(part * (shades.length - 1))];
    return isFaded ? faded : plain;
  }
}

/**
 * @typedef {object} Shade
 * @property {string} plain
 * @property {string} faded
 */

/** @returns {Shade} */
export function createShade(/** @type {number[]} */ colour, /** @type {number[]} */ background) {
  return { plain: formatCssColour(colour), faded: formatCssColour(blend(colour, background, FADED_PART)) };
}

/** Reads a colour of the style sheet as red, green and blue. */
export function readStyleColour(/** @type {string} */ name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g) ?? ["0", "0", "0"];
  probe.remove();
  return numbers.slice(0, 3).map(Number);
}

export function blend(from, to, part) {
  return from.map((value, index) => Math.round(value + (to[index] - value) * part));
}

export function formatCssColour(/** @type {number[]} */ colour) {
  return `rgb(${colour.join(" ")})`;
}
