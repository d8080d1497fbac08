"""Tables of any length: nuisance models from a sample of the rows, one pass over all of them, sums that add up."""

from modifind.streaming.engine import LocalPieces, Pieces, Streamed, StreamedFit
from modifind.streaming.schema import Piece
from modifind.streaming.sources import FrameSource, Source, open_files

__all__ = ["FrameSource", "LocalPieces", "Piece", "Pieces", "Source", "Streamed", "StreamedFit", "open_files"]
