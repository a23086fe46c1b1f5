"""Packaging for both worlds: `pip install .` and `colcon build` (ament_python)."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = "soft_estimator"


def share_files():
    """Files for share/soft_estimator, one entry per folder, as the ament index expects them.

    Of config/ only the layouts for RViz and Foxglove are there, to be opened by hand: the rest travels as package data
    (see CONFIG), and a second installed copy would be one whose edits have no effect.
    """
    folders = {
        f"share/{PACKAGE}": ["package.xml"],
        "share/ament_index/resource_index/packages": [f"resource/{PACKAGE}"],
    }
    layouts = [*Path("config").glob("rviz/*.rviz"), *Path("config").glob("foxglove/*.json")]
    for path in sorted([*Path("launch").rglob("*.py"), *layouts]):
        folders.setdefault(f"share/{PACKAGE}/{path.parent.as_posix()}", []).append(path.as_posix())
    return list(folders.items())


# config/ is the one home of the parameter files and the Fast DDS profile, config/scenes of the scene files; the mapping
# installs them as soft_estimator/builtin_config and /builtin_scenes. `colcon build --symlink-install` runs
# this file in a folder that links to soft_estimator/ only; the files are then found in the source tree behind that link
# (soft_estimator/scene/files.py, soft_estimator/ros/graph.py), as in an editable install.
HOMES = {f"{PACKAGE}.builtin_config": "config", f"{PACKAGE}.builtin_scenes": "config/scenes"}
CONFIG = {package: home for package, home in HOMES.items() if Path(home).is_dir()}

NODES = ("camera_node", "cloud_node", "estimator_node", "twin_node")

# The wheels of ROS 2 exist for x86-64 Linux. Elsewhere (a Jetson, a Raspberry Pi) ROS comes from its own packages;
# without it everything but the nodes works.
ROS_WHEELS = "; platform_machine=='x86_64' and sys_platform=='linux'"
ROS_REQUIREMENTS = [
    f"ros-jazzy-rclpy>=7.1.6,<8{ROS_WHEELS}",
    f"ros-jazzy-rmw-fastrtps-cpp>=8.4.3,<9{ROS_WHEELS}",
    f"ros-jazzy-common-interfaces>=5.3.6,<6{ROS_WHEELS}",
    f"ros-jazzy-lifecycle-msgs>=2.0.3,<3{ROS_WHEELS}",
    f"ros-jazzy-ament-index-python>=1.8.1,<2{ROS_WHEELS}",
]

README = Path("README.md")  # not there in the folder that `colcon build --symlink-install` runs this in

setup(
    name=PACKAGE,
    version="0.1.0",
    description="Stiffness, damping and contact plane of a soft object from depth-camera clouds",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    keywords=["soft bodies", "stiffness", "depth camera", "finite elements", "ROS 2"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Physics",
    ],
    maintainer="The soft_estimator maintainers",
    license="Apache-2.0",
    packages=[*find_packages(include=[PACKAGE, f"{PACKAGE}.*"]), *CONFIG],
    package_dir=CONFIG,
    package_data={
        PACKAGE: [
            "backends/cuda/*.cu",
            "backends/cuda/*.cuh",
            "report/page.css",
            "report/page.js",
            "studies/beam_data/*",
        ],
        **{package: ["*.yaml", "*.xml", "rviz/*.rviz", "foxglove/*.json"] for package in CONFIG},
    },
    data_files=share_files(),
    python_requires=">=3.10,<3.14",
    install_requires=[
        "numpy>=1.26,<3",
        "scipy>=1.11.1,<2",
        "numba>=0.62,<1",  # before, what a process compiled and what it loaded gave other last digits
        "pyyaml>=6,<7",
        "trimesh>=4,<6",
        "libigl>=2.6,<3",
        "matplotlib>=3.8,<4",
        "tqdm>=4.65,<5",
        "pillow>=10,<14",
        "plotly>=5.20,<8",  # its plotly.js draws the report's 3D view
        "shtab>=1.10,<2",  # shell completion
        "rosbags>=0.11.6,<0.12",  # bags, without ROS
    ],
    extras_require={
        # The launch_testing plugin of a ROS install breaks pytest 9.
        "test": [
            "pytest>=8.2,<9",
            "pytest-xdist>=3.8,<4",
            "hypothesis>=6.100,<7",
            "ruff>=0.6,<1",
            "mypy>=1.11,<3",
            "scikit-image>=0.22,<1",
        ],
        "ros": ROS_REQUIREMENTS,
        "bench": ["scikit-fem>=10,<13"],  # another solver to compare with
        "dask": ["distributed>=2024.1,<2027"],  # fleets of bags
        "viewer": ["viser>=1.1.1,<2"],
        "browser": ["selenium>=4.20,<5"],  # tests in a real Chromium
        # tests that open exported bodies in other simulators
        "export-test": [
            "mujoco>=4,<5",
            "usd-core>=24.11,<27",
            "newton>=1.7,<2",
            "newton-usd-schemas>=0.6,<1",
            "warp-lang>=1.17,<2",
        ],
        "cuda12": ["cupy-cuda12x>=13,<15"],
        "cuda13": ["cupy-cuda13x>=13.6,<15"],
        # 0.20 needs Debian's libusb-1.0-0; 0.19 does not, but has no wheel for Python 3.13. The build without CUDA
        # exists for x86-64 only.
        "perception": [
            "open3d-cpu==0.19.0; python_version<'3.13' and platform_machine=='x86_64'",
            "open3d-cpu>=0.20,<0.21; python_version>='3.13' and platform_machine=='x86_64'",
            "open3d>=0.18,<0.21; platform_machine!='x86_64'",
        ],
    },
    entry_points={
        "console_scripts": [
            "soft-estimator = soft_estimator.cli:main",
            # `ros2 run` and launch find these in lib/soft_estimator (see setup.cfg)
            *(f"{node} = soft_estimator.ros.start:{node}" for node in NODES),
        ]
    },
    zip_safe=False,
)
