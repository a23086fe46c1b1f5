"""Pictures without a graphics card, and the colours and wording that every picture and page shares."""
