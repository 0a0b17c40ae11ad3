// A reader of protobuf messages. Every read is checked against the end of the message.

/** A part of a message: the next field with each call of `next`. */
export class Message {
  field = 0;
  /** The value of a field that is a number. */
  number = 0;
  private wire = 0;
  private start = 0;
  private stop = 0;

  constructor(
    readonly bytes: Uint8Array,
    private position = 0,
    private readonly end = bytes.length,
  ) {}

  /** Moves to the next field; returns whether one exists. */
  next(): boolean {
    if (this.position >= this.end) return false;
    const key = this.varint();
    this.field = Math.floor(key / 8);
    this.wire = key % 8;
    this.number = 0;
    this.start = this.position;
    switch (this.wire) {
      case 0:
        this.number = this.varint();
        break;
      case 1:
        this.position += 8;
        break;
      case 2: {
        const length = this.varint();
        this.start = this.position;
        this.position += length;
        break;
      }
      case 5:
        this.position += 4;
        break;
      default:
        throw new Error(`not a profile: field of type ${this.wire} at byte ${this.start}`);
    }
    if (!(this.position <= this.end)) throw new Error("not a profile: it ends inside a field");
    this.stop = this.position;
    return true;
  }

  /** Returns the message that is the value of the field. */
  message(): Message {
    this.expectBytes();
    return new Message(this.bytes, this.start, this.stop);
  }

  /** Returns the bytes that are the value of the field. */
  slice(): Uint8Array {
    this.expectBytes();
    return this.bytes.subarray(this.start, this.stop);
  }

  /** Calls `each` with every number of a repeated field, packed or not. */
  numbers(each: (number: number) => void): void {
    if (this.wire === 0) {
      each(this.number);
      return;
    }
    this.expectBytes();
    const packed = new Message(this.bytes, this.start, this.stop);
    while (packed.position < packed.end) each(packed.varint());
  }

  private expectBytes(): void {
    if (this.wire !== 2) throw new Error(`not a profile: field ${this.field} has type ${this.wire}`);
  }

  /** Reads a number as a signed one of 64 bits. Above 2^53, it is rounded. */
  private varint(): number {
    let low = 0;
    let high = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.position >= this.end) throw new Error("not a profile: it ends inside a number");
      const byte = this.bytes[this.position++]!;
      const bits = byte & 0x7f;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= (bits & 0x0f) << 28;
        high |= bits >> 4;
      } else high |= bits << (shift - 32);
      if (byte < 0x80) return (high | 0) * 4294967296 + (low >>> 0);
    }
    throw new Error("not a profile: a number exceeds 64 bits");
  }
}
