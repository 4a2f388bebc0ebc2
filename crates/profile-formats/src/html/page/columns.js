// Long columns of numbers, which are packed into text as source maps pack theirs: see `column.rs`.

const DIGIT_BITS = 5;

/** In a digit: more follow. */
const MORE = 1 << DIGIT_BITS;

/** What each letter of base64 stands for, by its code. */
const DIGITS = new Uint8Array(128);
for (let digit = 0; digit < 64; digit += 1) {
  DIGITS["ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".charCodeAt(digit)] = digit;
}

/**
 * @template {Int32Array | Uint32Array | Float64Array} Column
 * @param {string} text
 * @param {{new (length: number): Column}} Type
 */
function readColumn(text, Type) {
  const column = new Type(columnLength(text));
  let entry = 0;
  let number = 0;
  let worth = 1;
  for (let at = 0; at < text.length; at += 1) {
    const digit = DIGITS[text.charCodeAt(at)];
    // No shift: that would cut counts off at 32 bits.
    number += (digit % MORE) * worth;
    worth *= MORE;
    if (digit < MORE) {
      column[entry] = number;
      entry += 1;
      number = 0;
      worth = 1;
    }
  }
  return column;
}

/** Numbers of either sign, within 31 bits. */
function readSignedColumn(/** @type {string} */ text) {
  const bits = readColumn(text, Uint32Array);
  const numbers = new Int32Array(bits.buffer);
  for (let entry = 0; entry < bits.length; entry += 1) numbers[entry] = (bits[entry] >>> 1) ^ -(bits[entry] & 1);
  return numbers;
}

/** Each number has one last digit. */
function columnLength(/** @type {string} */ text) {
  let length = 0;
  for (let at = 0; at < text.length; at += 1) length += DIGITS[text.charCodeAt(at)] < MORE ? 1 : 0;
  return length;
}
