"""The picture of a frame shows what the sensor saw, the right way up."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.objects import NothingFound, Why
from soft_estimator.perception.pictures import COLOURS, draw_frame

# Right, down and ahead of the camera, as columns, in the frames that drivers give points in.
OPTICAL, BODY = np.eye(3), np.array([[0.0, 0, 1], [-1, 0, 0], [0, -1, 0]])


@pytest.mark.parametrize(("frame", "ahead"), [(OPTICAL, (0.0, 0.0, 1.0)), (BODY, (1.0, 0.0, 0.0))])
def test_a_cloud_without_an_image_is_drawn_as_its_camera_saw_it(
    frame: np.ndarray, ahead: tuple[float, float, float]
) -> None:
    """A RealSense's clouds have no rows: points a metre ahead, twice as wide as high, whose right upper quarter is the
    object's, are drawn so, without a border, wherever the camera is turned to."""
    x, y = (axis.ravel() for axis in np.meshgrid(np.linspace(-1, 1, 300), np.linspace(-0.5, 0.5, 150)))
    points = np.stack([x, y, np.ones_like(x)], axis=1)
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_rotvec([0.3, 2.0, -0.7]).as_matrix()
    cloud = cloud_from_points(points @ frame.T, pose, optical_axis=ahead)
    why = np.where((x > 0.05) & (y < -0.05), Why.KEPT, Why.PLANE)
    for jitter in np.random.default_rng(0).uniform(
        0.5, 1.5, 20
    ):  # sizes of all kinds fill the picture to its last pixel
        wider = cloud_from_points(points * np.array([jitter, 1.0, 1.0]) @ frame.T, pose, optical_axis=ahead)
        assert draw_frame(wider, NothingFound("nobody looked", None, why)).shape[1] <= 480 + 230
    picture = draw_frame(cloud, NothingFound("nobody looked", None, why))[:240, :-230]
    assert abs(picture.shape[1] / picture.shape[0] - 2) < 0.02
    kept = (picture == COLOURS[Why.KEPT]).all(axis=-1)
    row, column = (np.argwhere(kept).mean(axis=0) / kept.shape).tolist()
    assert 0.7 < column < 0.8 and 0.2 < row < 0.3  # its middle: at 3/4 of the width, 1/4 of the height
