// Text from the program, made safe to read: control characters become visible, and long text short.

const CONTROL = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

function picture(character: string): string {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return code === 0x7f ? "\u2421" : "\ufffd";
}

/** Replaces control characters, and those that change the direction of text, by visible ones. */
export function visible(text: string): string {
  return text.replace(CONTROL, picture);
}

/** Returns the visible text in at most `limit` characters. */
export function short(text: string, limit = 300): string {
  const cut = text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
  return visible(cut);
}
