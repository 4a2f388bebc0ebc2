// The colours of the page: those of the style sheet, made lighter or darker where boxes must be told apart.

/** The kinds in the order of the legend, and what they are called. */
const KINDS = {
  jit: "JIT",
  precompiled: "managed, precompiled",
  native: "native",
  inlined: "inlined",
  kernel: "kernel",
  unsymbolized: "unsymbolized",
};

/** How far a box goes towards the background that does not match a search. */
const FADED = 0.72;

/** What all parts of the page have in common. */
class Colours {
  /** To be called when the theme changes. */
  readStyle() {
    this.background = styleColour("--panel");
    this.text = cssColour(styleColour("--box-text"));
    this.fadedText = cssColour(styleColour("--faint"));
    this.outline = cssColour(styleColour("--text"));
    this.focus = cssColour(styleColour("--focus"));
    this.heat = styleColour("--heat");
  }
}

/** How far each shade goes from a kind's colour towards the background. */
const SHADES = [0, 0.12, 0.24];

/** Boxes by the kind of their code, in a few shades that keep neighbours apart. */
class KindColours {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    this.shadeOf = Uint8Array.from(functions.name, (name) => {
      let sum = 0;
      for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
      return sum % SHADES.length;
    });
  }

  readStyle(/** @type {number[]} */ background) {
    /** @type {Record<string, Shade[]>} */
    this.boxes = {};
    for (const kind of [...Object.keys(KINDS), "root"]) {
      const colour = styleColour(`--${kind}`);
      this.boxes[kind] = SHADES.map((part) => shade(blend(colour, background, part), background));
    }
  }

  box(which, isFaded) {
    const { plain, faded } = this.boxes[this.functions.kind[which]][this.shadeOf[which]];
    return isFaded ? faded : plain;
  }
}

/** What is more than noise has at least so much of its colour. */
const LEAST_PART = 0.3;

const CHANGE_STEPS = 8;

/** Boxes by their change: of no colour within noise, and the stronger the larger the part that came or went. */
class ChangeColours {
  readStyle(/** @type {number[]} */ background) {
    const same = styleColour("--noise");
    const steps = (/** @type {string} */ name) => {
      const colour = styleColour(name);
      const part = (step) => LEAST_PART + ((1 - LEAST_PART) * step) / (CHANGE_STEPS - 1);
      return Array.from({ length: CHANGE_STEPS }, (_, step) => shade(blend(same, colour, part(step)), background));
    };
    /** @type {Record<string, Shade[]>} */
    this.boxes = { more: steps("--more"), less: steps("--less"), noise: [shade(same, background)] };
  }

  box(/** @type {Change} */ change, isFaded) {
    const shades = this.boxes[directionOf(change)];
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
function shade(/** @type {number[]} */ colour, /** @type {number[]} */ background) {
  return { plain: cssColour(colour), faded: cssColour(blend(colour, background, FADED)) };
}

/** A colour of the style sheet as red, green and blue. */
function styleColour(/** @type {string} */ name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g) ?? ["0", "0", "0"];
  probe.remove();
  return numbers.slice(0, 3).map(Number);
}

function blend(from, to, part) {
  return from.map((value, index) => Math.round(value + (to[index] - value) * part));
}

function cssColour(/** @type {number[]} */ colour) {
  return `rgb(${colour.join(" ")})`;
}
