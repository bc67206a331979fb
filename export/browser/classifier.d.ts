/** What `classify` takes; a string is a URL. */
export type ImageSource =
  | Blob
  | HTMLImageElement
  | HTMLCanvasElement
  | HTMLVideoElement
  | OffscreenCanvas
  | ImageBitmap
  | ImageData
  | VideoFrame
  | URL
  | string;

/** A part of an image, in shares of its sides from 0 to 1. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Answer {
  /** The five most probable classes. */
  top: { class: string; probability: number }[];
  /** Of all classes, in the order of `classNames`. */
  probabilities: Float32Array;
  /** Names of the classes above their thresholds; only of multi-label models. */
  labels?: string[];
  /** Where the model looked: the share of each patch of `box`, row by row; only of models that attend over all tokens. */
  attention?: { values: Float32Array; height: number; width: number; box: Box };
  /** The model's time. */
  milliseconds: number;
}

/** The names of the classes, in the order of `probabilities`. */
export const classNames: readonly string[];

/** Sets where the files are: a function from a file's name to its URL, or to a promise of it. */
export function locateFiles(locate: (name: string) => string | Promise<string>): void;

/** Loads the runtime and the model, in browsers only. */
export function load(): Promise<unknown>;

/** Classifies an image, in browsers only. */
export function classify(image: ImageSource): Promise<Answer>;

/** The part of an image of this size, in pixels, that the model receives. */
export function seenBox(
  width: number,
  height: number,
  view?: { keepsAspect: boolean; resized: [number, number]; size: [number, number] },
): Box;
