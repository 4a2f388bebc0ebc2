// The colours of boxes: those of the style sheet, in a few shades that keep neighbours apart.

/** The kinds in the order of the legend, and what they are called. */
const KINDS = {
  jit: "JIT",
  precompiled: "precompiled",
  native: "native",
  inlined: "inlined",
  kernel: "kernel",
  unnamed: "no name",
};

/** How far each shade goes from a kind's colour towards the background. */
const SHADES = [0, 0.12, 0.24];

/** How far a box goes that does not match a search. */
const FADED = 0.72;

class Colours {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    this.shadeOf = Uint8Array.from(functions.name, (name) => {
      let sum = 0;
      for (let at = 0; at < name.length; at += 1) sum = (sum * 31 + name.charCodeAt(at)) >>> 0;
      return sum % SHADES.length;
    });
    this.readStyle();
  }

  /** To be called when the theme changes. */
  readStyle() {
    this.background = styleColour("--panel");
    this.text = cssColour(styleColour("--box-text"));
    this.fadedText = cssColour(styleColour("--faint"));
    this.outline = cssColour(styleColour("--text"));
    this.focus = cssColour(styleColour("--focus"));
    this.heat = styleColour("--heat");
    /** @type {Record<string, {plain: string[], faded: string[]}>} */
    this.boxes = {};
    for (const kind of [...Object.keys(KINDS), "root"]) {
      const colour = styleColour(`--${kind}`);
      const shades = SHADES.map((part) => blend(colour, this.background, part));
      const faded = shades.map((shade) => cssColour(blend(shade, this.background, FADED)));
      this.boxes[kind] = { plain: shades.map(cssColour), faded };
    }
  }

  box(which, isFaded) {
    const boxes = this.boxes[this.functions.kind[which]];
    return (isFaded ? boxes.faded : boxes.plain)[this.shadeOf[which]];
  }
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
