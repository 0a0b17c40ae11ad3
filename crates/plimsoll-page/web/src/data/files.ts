// Profiles of files, which the page shows in place of a running program. The document lists them in its element `files`.

/** A profile of a file. */
export interface FileProfile {
  /** Its name in addresses. */
  name: string;
  title: string;
  /** Whether it is a post-mortem file with a history: the server has its readings of the past. */
  hasHistory?: boolean;
  /** Whether it is a post-mortem file with verdicts on allocation sites. */
  hasGrowth?: boolean;
  /** Whether its values are changes. */
  isDifference?: boolean;
  /** The sample type to show first. */
  sampleType?: string;
  /** The profile itself, compressed, in base64. Without it, the server has the profile. */
  data?: string;
}

/** Reads the list of files from the document; `undefined` for the page of a running program. */
function read(): FileProfile[] | undefined {
  const element = document.getElementById("files");
  return element === null ? undefined : (JSON.parse(element.textContent!) as { profiles: FileProfile[] }).profiles;
}

/** The files; `undefined` for the page of a running program. */
export const files = read();

/** Returns the file with that name. */
export function fileOf(name: string): FileProfile | undefined {
  return files?.find((file) => file.name === name);
}

/** Returns the profile that the document contains under that name. */
export function embedded(name: string): Uint8Array<ArrayBuffer> | undefined {
  const data = fileOf(name)?.data;
  return data === undefined ? undefined : Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
}
