"""Operations on images: how they are declared, and how they run on the CPU. Needs numpy, no torch."""
