"""What ./scripts/exercise runs: exercises that grade themselves. Standard library only."""
